// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/embedding"
)

// TestG02 refuses peers that do not fit, with both values, on every Send.
func TestG02Refused(t *testing.T) {
	f := func(change func(*SenderConfig), values ...string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, func(c *ReceiverConfig) { c.Model = "test model" })
			defer w.close()
			s := w.sender(change)
			defer s.Close()
			buf := w.buf(object(t, "a"))
			defer buf.Release()
			tk := w.grant(want("a"))[0]
			for range 2 {
				err := s.Send(t.Context(), tk.Grant(), buf)
				if !errors.Is(err, ErrRefused) {
					t.Fatalf("got %v", err)
				}
				for _, v := range values {
					if !strings.Contains(err.Error(), v) {
						t.Errorf("%q does not name %s", err, v)
					}
				}
			}
			synctest.Wait()
			w.wantDropped("hello", 2)
		})
	}
	f(func(c *SenderConfig) { c.Engine = "other engine" }, `"other engine"`, `"test engine 1"`)
	f(func(c *SenderConfig) { c.Cols = 65 }, "65 columns", " 64")
	f(func(c *SenderConfig) { c.DType = embedding.BFloat16 }, "torch.bfloat16", "torch.float16")
	f(func(c *SenderConfig) { c.Model = "other model" }, `"other model"`, `"test model"`)
}

// A sender that names rows by other keys is refused; one that says more than is known is not.
func TestG02KeyVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		s := w.sender()
		defer s.Close()
		s.(*sender).me.Keys++
		buf := w.buf(object(t, "a"))
		defer buf.Release()
		err := s.Send(t.Context(), w.grant(want("a"))[0].Grant(), buf)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "version 2 of keys, this process by 1") {
			t.Errorf("got %v", err)
		}
		p := w.mute()
		defer p.nc.Close()
		p.write(appendText(nil, header{Type: frameHello}, strings.Replace(w.me.encode(), "{", `{"later":[1],`, 1)))
		if h, text := p.read(); h.Status != statusComplete {
			t.Errorf("a hello that says more: %v %s", h.Status, text)
		}
	})
}

// A peer of another wire version is refused on whichever side notices first, with both versions.
func TestG02WireVersion(t *testing.T) {
	other := header{Version: WireVersion + 1, Type: frameHello}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		p := w.mute()
		defer p.nc.Close()
		p.write(other.append(nil))
		if h, text := p.read(); h.Status != statusRefused || !strings.Contains(text, "version 3, this process 2") {
			t.Errorf("answered by status %v, %q", h.Status, text)
		}
		p.wantClosed()
	})
	synctest.Test(t, func(t *testing.T) {
		err := sendTo(t, func(nc net.Conn) { nc.Write(other.append(nil)) })
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "version 3, this process 2") {
			t.Errorf("got %v", err)
		}
	})
}

// sendTo sends one object to a receiver that answers hello with answer, and returns the error.
func sendTo(t *testing.T, answer func(net.Conn)) error {
	t.Helper()
	w := newWorld(t, 1)
	defer w.close()
	s := w.sender(func(c *SenderConfig) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				if h, err := readHeader(far); err == nil {
					_, _ = readText(far, h)
					answer(far)
				}
				_, _ = io.Copy(io.Discard, far)
				far.Close()
			}()
			return near, nil
		}
	})
	defer s.Close()
	buf := w.buf(object(t, "a"))
	defer buf.Release()
	return s.Send(t.Context(), w.grant(want("a"))[0].Grant(), buf)
}

func testHello(engine string) hello {
	return hello{Engine: engine, Cols: testCols, DType: embedding.Float16, Keys: KeyVersion}
}

func welcome(w *receiver) []byte {
	return appendText(nil, header{Type: frameHello, Generation: w.generation}, w.me.encode())
}

func TestSenderHandshakeFaults(t *testing.T) {
	f := func(class error, answer func(net.Conn)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			if err := sendTo(t, answer); !errors.Is(err, class) {
				t.Errorf("got %v, want %v", err, class)
			}
			if d := time.Since(start); d > handshakeTimeout {
				t.Errorf("took %v", d)
			}
		})
	}
	f(ErrPeer, func(nc net.Conn) {}) // silent
	f(ErrPeer, func(nc net.Conn) { nc.Close() })
	f(ErrPeer, func(nc net.Conn) { nc.Write(make([]byte, headerBytes)) })
	f(ErrPeer, func(nc net.Conn) { nc.Write(header{Type: framePong}.append(nil)) })
	f(ErrPeer, func(nc net.Conn) { nc.Write(header{Type: frameHello, Length: 1 << 50}.append(nil)) })
	f(ErrRefused, func(nc net.Conn) {
		nc.Write(appendText(nil, header{Type: frameHello}, testHello("elsewhere").encode()))
	})
	// Another process answers than the one that granted: it need not see the bytes.
	f(ErrGone, func(nc net.Conn) {
		nc.Write(appendText(nil, header{Type: frameHello, Generation: 2}, testHello(testEngine).encode()))
	})
}
