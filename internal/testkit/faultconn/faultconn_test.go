// SPDX-License-Identifier: Apache-2.0

package faultconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var message = bytes.Repeat([]byte("afterimage"), 10)

// pass writes message through p and returns what the writer and the reader saw.
func pass(t *testing.T, p Plan) (n int, got []byte, werr error) {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	c := Wrap(near, p)
	read := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(far) // ends with the connection
		read <- b
	}()
	n, werr = c.Write(message)
	c.Close()
	return n, <-read, werr
}

func TestWriteFaults(t *testing.T) {
	f := func(name string, w Faults, wantN int, wantErr error, want []byte) {
		t.Helper()
		n, got, err := pass(t, Plan{Seed: 7, Write: w})
		if n != wantN || !errors.Is(err, wantErr) || !bytes.Equal(got, want) {
			t.Errorf("%s: wrote %d, %v, peer got %q; want %d, %v, %q", name, n, err, got, wantN, wantErr, want)
		}
	}
	f("sound", Faults{}, 100, nil, message)
	f("chunks", Faults{Chunk: 7}, 100, nil, message)
	f("short", Faults{Chunk: 9, ShortAfter: 42}, 42, io.ErrShortWrite, message[:42])
	f("cut", Faults{CutAfter: 1}, 1, ErrCut, message[:1])
	f("stall", Faults{StallAfter: 64}, 100, nil, message[:64])
}

func TestCorruptFlipsOneBit(t *testing.T) {
	before := bytes.Clone(message)
	_, got, _ := pass(t, Plan{Seed: 7, Write: Faults{Chunk: 30, CorruptAt: 50}})
	if !bytes.Equal(before, message) {
		t.Error("the writer's own bytes were changed")
	}
	for i := range got {
		if diff := got[i] ^ message[i]; (diff != 0) != (i == 49) || diff&(diff-1) != 0 {
			t.Errorf("byte %d: %08b became %08b", i, message[i], got[i])
		}
	}
}

func TestReadFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := Wrap(near, Plan{Read: Faults{Delay: time.Second, StallAfter: 4}})
		go func() {
			far.Write(message)
			far.Close()
		}()
		start := time.Now()
		b := make([]byte, 100)
		n, err := c.Read(b)
		if n != 4 || err != nil || time.Since(start) != time.Second {
			t.Errorf("read %d, %v after %v", n, err, time.Since(start))
		}
		if n, err = c.Read(b); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("stalled read got %d, %v; want the end of the stream", n, err)
		}
	})
	near, far := net.Pipe()
	defer far.Close()
	c := Wrap(near, Plan{Read: Faults{StallAfter: 1}})
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	c.Close()
}

func TestRandomRepeats(t *testing.T) {
	for seed := range uint64(100) {
		if a, b := Random(seed, 1000), Random(seed, 1000); a != b {
			t.Fatalf("seed %d: %v and %v", seed, a, b)
		}
	}
}

func TestPipeAndDialer(t *testing.T) {
	p := NewPipe()
	dial := Dialer(p.Dial, func(n int) Plan { return Plan{Write: Faults{CutAfter: int64(n + 1)}} })
	for n := range 2 {
		accepted := make(chan net.Conn)
		go func() {
			nc, err := p.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- nc
		}()
		nc, err := dial(context.Background(), "tcp", "anywhere:1")
		if err != nil {
			t.Fatal(err)
		}
		far := <-accepted
		go nc.Write(message)
		got, _ := io.ReadAll(far)
		if !bytes.Equal(got, message[:n+1]) {
			t.Errorf("connection %d passed %q", n, got)
		}
	}
	p.Close()
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if _, err := p.Dial(context.Background(), "", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial after Close: %v", err)
	}
}
