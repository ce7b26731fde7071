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
		w.open = func(wt Want, obj []byte, c *embedding.Checker) (m embedding.Meta, err error) {
			close(checking)
			<-proceed
			return open(wt, obj, c)
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

func TestSenderClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		proceed := make(chan struct{})
		w.open = func(Want, []byte, *embedding.Checker) (m embedding.Meta, err error) { <-proceed; return m, nil }
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
