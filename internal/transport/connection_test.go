// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/testkit/faultconn"
)

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
