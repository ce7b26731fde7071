// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// interrupted reads a byte at a time and fails before each.
type interrupted struct {
	r     io.Reader
	again bool
}

func (i *interrupted) Read(p []byte) (int, error) {
	if i.again = !i.again; i.again {
		return 0, os.ErrDeadlineExceeded
	}
	return i.r.Read(p[:1])
}

// A response that is interrupted at every byte arrives whole.
func TestInboxGoesOn(t *testing.T) {
	in := newInbox(&interrupted{r: bytes.NewReader(append(response(0, 7, []byte("body")), response(0, 8, nil)...))})
	for seq := uint32(7); seq <= 8; seq++ {
		body, breaks := map[uint32]string{7: "body"}[seq], 0
		for {
			got, rep, err := in.next()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				breaks++
				continue
			}
			if err != nil || got != seq || string(rep.body) != body {
				t.Errorf("got %d, %q, %v, want %d, %q", got, rep.body, err, seq, body)
			}
			break
		}
		if breaks < rpcResponseBytes {
			t.Errorf("%d breaks, want one for each byte", breaks)
		}
	}
}

// echo answers each request with its own body: late, in any order, and in pieces.
func echo(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		var mu sync.Mutex
		var answers sync.WaitGroup
		defer answers.Wait()
		for {
			h := make([]byte, rpcRequestBytes)
			if _, err := io.ReadFull(nc, h); err != nil {
				return
			}
			body := make([]byte, binary.LittleEndian.Uint32(h[12:]))
			if _, err := io.ReadFull(nc, body); err != nil {
				return
			}
			answers.Go(func() {
				time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
				mu.Lock()
				defer mu.Unlock()
				for b := response(0, binary.LittleEndian.Uint32(h[4:]), body); len(b) > 0; {
					n, err := nc.Write(b[:min(len(b), 1+rand.IntN(12))])
					if err != nil {
						return
					}
					b = b[n:]
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

// Whoever is told of a break by a call finds the whole link given up.
func TestBreakIsKnownBeforeCallsEnd(t *testing.T) {
	var ch <-chan reply
	early := true
	c, err := dialConn(t.Context(), echo(t), func(error) { early = len(ch) > 0 })
	if err != nil {
		t.Fatal(err)
	}
	if ch, err = c.send(1, nil); err != nil {
		t.Fatal(err)
	}
	c.close()
	if early {
		t.Error("the call ended first")
	}
}

// Callers that read for each other, and leave in the middle of it, get their own answers.
func TestCallersReadForEachOther(t *testing.T) {
	var broken atomic.Int32
	c, err := dialConn(t.Context(), echo(t), func(error) { broken.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	var answered, left atomic.Int32
	var callers sync.WaitGroup
	for w := range 8 {
		callers.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithCancel(context.Background())
				if i%3 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(200))*time.Microsecond, cancel)
				}
				want := fmt.Sprintf("%d/%d", w, i)
				switch got, err := c.call(ctx, 1, []byte(want)); {
				case err == nil && string(got) == want:
					answered.Add(1)
				case errors.Is(err, context.Canceled):
					left.Add(1)
				default:
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	if answered.Load() < 8*200/2 || left.Load() == 0 || broken.Load() != 0 {
		t.Errorf("%d answered, %d left, broken %d times", answered.Load(), left.Load(), broken.Load())
	}
	c.close()
	if _, err := c.call(t.Context(), 1, nil); !errors.Is(err, net.ErrClosed) || broken.Load() != 1 {
		t.Errorf("a call after the end: %v, broken %d times", err, broken.Load())
	}
}

// The end of a connection ends all calls on it, whoever reads, and is told once; one that is watched needs no
// call for it.
func TestConnectionEnds(t *testing.T) {
	for _, watched := range []bool{false, true} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		broken := make(chan error, 2)
		c, err := dialConn(t.Context(), ln.Addr().String(), func(err error) { broken <- err })
		if err != nil {
			t.Fatal(err)
		}
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		calls := 0
		if watched {
			if err := c.watch(); err != nil {
				t.Fatal(err)
			}
		} else {
			calls = 3
		}
		for range calls {
			go func() {
				_, err := c.call(context.Background(), 1, nil)
				ended <- err
			}()
		}
		// Requests are there before the end, so that no call finds it already.
		if _, err := io.ReadFull(server, make([]byte, calls*rpcRequestBytes)); err != nil {
			t.Fatal(err)
		}
		server.Close()
		for range calls {
			if err := <-ended; !errors.Is(err, io.EOF) {
				t.Errorf("a call ended with %v, want EOF", err)
			}
		}
		if err := <-broken; !errors.Is(err, io.EOF) {
			t.Errorf("broken: %v, want EOF", err)
		}
		c.close()
		if len(broken) != 0 {
			t.Error("told twice")
		}
		ln.Close()
	}
}
