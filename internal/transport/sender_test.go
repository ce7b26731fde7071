// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/testkit/faultconn"
)

// TestTCP delivers many objects from two senders over real sockets, all at once.
func TestTCP(t *testing.T) {
	w := newWorld(t, 8, func(c *ReceiverConfig) { c.Listener, c.Address = nil, "127.0.0.1:0" })
	w.pipe = nil
	defer w.close()
	senders := []Sender{w.sender(), w.sender()}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			tks, err := w.Grant(t.Context(), []Want{want(name(i))})
			if err != nil {
				t.Error(err)
				return
			}
			obj := object(t, name(i))
			buf := bufIn(t, w.from, obj)
			defer buf.Release()
			if err := senders[i%2].Send(t.Context(), tks[0].Grant(), buf); err != nil {
				t.Error(err)
			}
			w.wantObject(tks[0], obj)
		})
	}
	wg.Wait()
	if got := testutil.ToFloat64(w.m.conns.WithLabelValues(sideReceiver)); got != 2 {
		t.Errorf("%v connections, want one per sender", got)
	}
	for _, s := range senders {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if st := w.from.Stats(); st.Committed != 0 {
		t.Errorf("senders still hold %d bytes", st.Committed)
	}
}

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

// TestSendClasses: what the receiver says comes back as a class and a reason.
func TestSendClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		defer w.close()
		s := w.sender()
		defer s.Close()
		f := func(g control.Grant, obj []byte, class error, text string) {
			t.Helper()
			buf := w.buf(obj)
			defer buf.Release()
			err := s.Send(t.Context(), g, buf)
			if !errors.Is(err, class) || err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want %v with %q", err, class, text)
			}
		}
		tks := w.grant(want("a"), want("b"), want("c"))
		a, b, c := tks[0].Grant(), tks[1].Grant(), tks[2].Grant()
		tks[1].Cancel()
		f(a, object(t, "b"), ErrRejected, "foreign")
		f(a, object(t, "a"), ErrGone, "failed")
		f(b, object(t, "b"), ErrGone, "cancelled")
		f(c, object(t, "c")[:100], ErrRejected, "object has 100 bytes, the grant is for")
		stale, mangled := c, c
		stale.Generation++
		mangled.Transfer = "xyz"
		f(stale, object(t, "c"), ErrGone, "generation")
		f(mangled, object(t, "c"), ErrGone, "32 hex digits")
		f(c, object(t, "c"), nil, "")
	})
}

// TestSendCancel ends a Send by its ctx at each of its steps.
func TestSendCancel(t *testing.T) {
	f := func(name string, run func(t *testing.T, w *world, s Sender, tk *ticket, ctx context.Context, cancel func())) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2)
				defer w.close()
				s := w.sender()
				defer s.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				run(t, w, s, w.grant(want("a"))[0], ctx, cancel)
			})
		})
	}
	send := func(t *testing.T, w *world, s Sender, tk *ticket, ctx context.Context) error {
		buf := w.buf(object(t, "a"))
		defer buf.Release()
		return s.Send(ctx, tk.Grant(), buf)
	}
	f("before", func(t *testing.T, w *world, s Sender, tk *ticket, ctx context.Context, cancel func()) {
		other := w.buf(object(t, "other"))
		defer other.Release()
		if err := s.Send(t.Context(), w.grant(want("other"))[0].Grant(), other); err != nil { // so that a link is there
			t.Error(err)
		}
		cancel()
		if err := send(t, w, s, tk, ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, _, err := tk.Wait(t.Context()); !errors.Is(err, ErrMissing) {
			t.Errorf("the receiver was not told: %v", err)
		}
	})
	f("while the object is checked", func(t *testing.T, w *world, s Sender, tk *ticket, ctx context.Context, cancel func()) {
		checking, proceed := make(chan struct{}), make(chan struct{})
		open := w.open
		w.open = func(wt Want, obj []byte) (m embedding.Meta, err error) {
			close(checking)
			<-proceed
			return open(wt, obj)
		}
		go func() {
			<-checking
			cancel()
		}()
		if err := send(t, w, s, tk, ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waiting for the receiver") {
			t.Errorf("got %v", err)
		}
		close(proceed)
		w.wantObject(tk, object(t, "a")) // it was there in time
		w.open = open
		// The late ack finds nobody and the connection serves the next.
		next := w.grant(want("a"))[0]
		if err := send(t, w, s, next, t.Context()); err != nil {
			t.Errorf("next send: %v", err)
		}
		if got := testutil.ToFloat64(w.m.dropped.WithLabelValues(sideSender, "late answer")); got != 1 {
			t.Errorf("%v late acks, want 1", got)
		}
	})
}

// A Send that is cancelled half-way returns at once. What it has begun goes on, since the connection is
// not its own: nobody else's Send suffers.
func TestSendCancelWhileWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		defer w.close()
		stuck, resume := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		dials := 0
		s := w.sender(func(c *SenderConfig) {
			c.Dial = func(ctx context.Context, n, a string) (net.Conn, error) {
				dials++
				far, err := w.pipe.Dial(ctx, n, a)
				if err != nil {
					return nil, err
				}
				near, mid := net.Pipe() // passes 500 bytes on, then stops until the test goes on
				wg.Go(func() { _, _ = io.Copy(mid, far) })
				wg.Go(func() {
					defer far.Close()
					defer mid.Close()
					_, _ = io.CopyN(far, mid, 500)
					close(stuck)
					<-resume
					_, _ = io.Copy(far, mid)
				})
				return near, nil
			}
		})
		defer wg.Wait()
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-stuck
			cancel()
		}()
		tks := w.grant(want("a"), want("b"))
		a, b := w.buf(object(t, "a")), w.buf(object(t, "b"))
		start := time.Now()
		if err := s.Send(ctx, tks[0].Grant(), a); !errors.Is(err, context.Canceled) || time.Since(start) > 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		a.Release()
		close(resume)
		if err := s.Send(t.Context(), tks[1].Grant(), b); err != nil || dials != 1 {
			t.Errorf("next send: %v after %d dials, want 1", err, dials)
		}
		b.Release()
		w.wantObject(tks[0], object(t, "a"))
		w.wantObject(tks[1], object(t, "b"))
		w.wantDropped("late abandon", 1)
		synctest.Wait() // for the writer, whose last object may be confirmed before it lets go
		if st := w.from.Stats(); st.Committed != 0 {
			t.Errorf("the sender still holds %d bytes", st.Committed)
		}
	})
}

// A broken connection fails the sends on it with ErrPeer; the next Send dials, after a pause that
// grows while dials fail.
func TestRedial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		var dials []time.Duration
		start := time.Now()
		up := false
		s := w.sender(func(c *SenderConfig) {
			c.Dial = func(ctx context.Context, n, a string) (net.Conn, error) {
				dials = append(dials, time.Since(start))
				if !up {
					return nil, errors.New("nobody is there")
				}
				return w.pipe.Dial(ctx, n, a)
			}
		})
		defer s.Close()
		tk := w.grant(want("a"))[0]
		buf := w.buf(object(t, "a"))
		defer buf.Release()
		for range 8 {
			if err := s.Send(t.Context(), tk.Grant(), buf); !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "nobody is there") {
				t.Fatalf("got %v", err)
			}
		}
		up = true
		if err := s.Send(t.Context(), tk.Grant(), buf); err != nil {
			t.Errorf("once the peer is up: %v", err)
		}
		pause := []time.Duration{50, 100, 200, 400, 800, 1000, 1000, 1000}
		for i, p := range pause {
			if got := dials[i+1] - dials[i]; got != p*time.Millisecond {
				t.Errorf("dial %d came %v after the one before, want %v", i+1, got, p*time.Millisecond)
			}
		}
		w.wantObject(tk, object(t, "a"))

		tk = w.grant(want("a"))[0]
		w.mu.Lock()
		for ss := range w.sessions {
			ss.nc.Close() // the worker goes away
		}
		w.mu.Unlock()
		synctest.Wait()
		if err := s.Send(t.Context(), tk.Grant(), buf); err != nil {
			t.Errorf("after the connection broke: %v", err)
		}
	})
}

// The caller that starts a dial can leave without harm to those who wait for the same dial.
func TestDialOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		defer w.close()
		s := w.sender(func(c *SenderConfig) {
			c.Dial = func(ctx context.Context, n, a string) (net.Conn, error) {
				time.Sleep(time.Second)
				return w.pipe.Dial(ctx, n, a)
			}
		})
		defer s.Close()
		tks := w.grant(want("a"), want("b"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i, c := range []context.Context{ctx, t.Context()} {
			wg.Go(func() {
				buf := w.buf(object(t, string("ab"[i])))
				defer buf.Release()
				if err := s.Send(c, tks[i].Grant(), buf); (err != nil) != (i == 0) {
					t.Errorf("send %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

// A receiver that goes silent fails the sends that wait for it, and is noticed when idle.
func TestSilentReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		s := w.sender(func(c *SenderConfig) {
			c.Dial = faultconn.Dialer(w.pipe.Dial, func(int) faultconn.Plan {
				// Nothing after the welcome arrives.
				return faultconn.Plan{Read: faultconn.Faults{StallAfter: int64(len(welcome(w.receiver)))}}
			})
		})
		defer s.Close()
		tk := w.grant(want("a"))[0]
		buf := w.buf(object(t, "a"))
		defer buf.Release()
		start := time.Now()
		err := s.Send(t.Context(), tk.Grant(), buf)
		if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "silent") {
			t.Errorf("got %v", err)
		}
		if d := time.Since(start); d > 25*time.Second {
			t.Errorf("noticed after %v", d)
		}
	})
}

// Pings keep an idle connection open at both ends.
func TestIdleConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		dials := 0
		s := w.sender(func(c *SenderConfig) {
			c.Dial = faultconn.Dialer(w.pipe.Dial, func(int) faultconn.Plan { dials++; return faultconn.Plan{} })
		})
		defer s.Close()
		for range 2 {
			tk := w.grant(want("a"))[0]
			buf := w.buf(object(t, "a"))
			if err := s.Send(t.Context(), tk.Grant(), buf); err != nil {
				t.Error(err)
			}
			buf.Release()
			w.wantObject(tk, object(t, "a"))
			time.Sleep(time.Hour)
		}
		if dials != 1 {
			t.Errorf("%d dials, want 1", dials)
		}
	})
}

func TestReceiverDropsIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		for _, p := range []*rawPeer{w.raw(), w.mute()} {
			start := time.Now()
			p.wantClosed()
			if d := time.Since(start); d > time.Minute {
				t.Errorf("closed after %v", d)
			}
			p.nc.Close()
		}
	})
}

func TestSenderClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		proceed := make(chan struct{})
		w.open = func(Want, []byte) (m embedding.Meta, err error) { <-proceed; return m, nil }
		s := w.sender()
		tks := w.grant(want("a"), want("b"))
		var wg sync.WaitGroup
		for i, n := range []string{"a", "b"} { // one waits for its ack, one to be read
			wg.Go(func() {
				buf := w.buf(object(t, n))
				defer buf.Release()
				if err := s.Send(t.Context(), tks[i].Grant(), buf); !errors.Is(err, ErrPeer) || !errors.Is(err, ErrClosed) {
					t.Errorf("send %s: %v", n, err)
				}
			})
		}
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		buf := w.buf(object(t, "a"))
		if err := s.Send(t.Context(), tks[0].Grant(), buf); !errors.Is(err, ErrClosed) {
			t.Errorf("send after close: %v", err)
		}
		buf.Release()
		close(proceed)
		w.close()
	})
}

func TestSenderConfigRefuses(t *testing.T) {
	for name, c := range map[string]SenderConfig{
		"engine": {Cols: 1}, "columns": {Engine: "e"}, "negative": {Engine: "e", Cols: 1, PeerTimeout: -1},
	} {
		if _, err := NewSender(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
