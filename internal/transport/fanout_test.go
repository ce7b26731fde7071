// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/testkit/faultconn"
)

// TestFanOut sends one buffer to several receivers. One that takes nothing holds up none of the others,
// and nothing but its own Send.
func TestFanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fast := []*world{newWorld(t, 1), newWorld(t, 1), newWorld(t, 1)}
		stuck, release := newWorld(t, 1), make(chan struct{})
		stuck.open = func(Want, []byte, *embedding.Checker) (embedding.Meta, error) { // as a worker that stands still
			<-release
			return embedding.Meta{}, embedding.ErrMalformed
		}
		all := append([]*world{stuck}, fast...)
		byAddress := map[string]*faultconn.Pipe{}
		var grants []control.Grant
		var tks []*ticket
		for i, w := range all {
			w.address = name(i)
			byAddress[w.address] = w.pipe
			tk := w.grant(want("x"))[0]
			tks, grants = append(tks, tk), append(grants, tk.Grant())
		}
		s := stuck.sender(func(c *SenderConfig) {
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				return byAddress[address].Dial(ctx, network, address)
			}
		})
		buf := fast[0].buf(object(t, "x"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		errs := make([]error, len(all))
		took := make([]time.Duration, len(all))
		var wg sync.WaitGroup
		for i, g := range grants {
			wg.Go(func() {
				errs[i] = s.Send(ctx, g, buf)
				took[i] = time.Since(start)
			})
		}
		wg.Wait()
		for i, w := range fast {
			if errs[i+1] != nil || took[i+1] > 0 {
				t.Errorf("receiver %d: %v after %v", i, errs[i+1], took[i+1])
			}
			w.wantObject(tks[i+1], object(t, "x"))
			w.close()
		}
		if !errors.Is(errs[0], context.DeadlineExceeded) {
			t.Errorf("the one that stands still: %v", errs[0])
		}
		buf.Release()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if st := fast[0].from.Stats(); st.Committed != 0 {
			t.Errorf("the sender still holds %d bytes", st.Committed)
		}
		close(release)
		stuck.close()
	})
}

// TestLostConfirmation: the connection breaks when the object has arrived and its sender has not heard.
// It asks, and hears; no byte of the object travels twice.
func TestLostConfirmation(t *testing.T) {
	for _, claimed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			s := w.sender(func(c *SenderConfig) {
				c.Dial = faultconn.Dialer(w.pipe.Dial, func(n int) faultconn.Plan {
					if n > 0 {
						return faultconn.Plan{}
					}
					return faultconn.Plan{Read: faultconn.Faults{CutAfter: int64(len(welcome(w.receiver))) + 10}}
				})
			})
			tk := w.grant(want("x"))[0]
			var wg sync.WaitGroup
			if claimed {
				wg.Go(func() { w.wantObject(tk, object(t, "x")) })
			}
			buf := w.buf(object(t, "x"))
			if err := s.Send(t.Context(), tk.Grant(), buf); err != nil {
				t.Errorf("claimed %v: %v", claimed, err)
			}
			buf.Release()
			wg.Wait()
			if !claimed {
				w.wantObject(tk, object(t, "x"))
			}
			w.wantDropped("duplicate", 0)
			s.Close()
			w.close()
		})
	}
}

// A connection that breaks before the object has arrived costs a second try, and the caller nothing.
func TestCutBeforeTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		s := w.sender(func(c *SenderConfig) {
			c.Dial = faultconn.Dialer(w.pipe.Dial, func(n int) faultconn.Plan {
				if n > 0 {
					return faultconn.Plan{}
				}
				return faultconn.Plan{Write: faultconn.Faults{CutAfter: int64(len(appendText(nil, header{}, w.me.encode()))) + 1}}
			})
		})
		tk := w.grant(want("x"))[0]
		buf := w.buf(object(t, "x"))
		if err := s.Send(t.Context(), tk.Grant(), buf); err != nil {
			t.Error(err)
		}
		buf.Release()
		w.wantObject(tk, object(t, "x"))
		s.Close()
		w.close()
	})
}

// TestReceiverRestart: a receiver that was started again at the same address is noticed at once, and
// nothing of the old one is taken for its own.
func TestReceiverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newWorld(t, 1)
		fresh := newWorld(t, 1)
		pipe := old.pipe
		s := old.sender(func(c *SenderConfig) {
			c.Dial = func(ctx context.Context, n, a string) (net.Conn, error) { return pipe.Dial(ctx, n, a) }
		})
		buf := old.buf(object(t, "x"))
		grant := old.grant(want("x"))[0].Grant()
		first := old.grant(want("x"))[0]
		if err := s.Send(t.Context(), first.Grant(), buf); err != nil {
			t.Error(err)
		}
		old.receiver.Close()
		pipe = fresh.pipe
		start := time.Now()
		if err := s.Send(t.Context(), grant, buf); !errors.Is(err, ErrGone) || time.Since(start) > time.Second {
			t.Errorf("a grant of the old process: %v after %v", err, time.Since(start))
		}
		tk := fresh.grant(want("x"))[0]
		if err := s.Send(t.Context(), tk.Grant(), buf); err != nil {
			t.Errorf("a grant of the new process: %v", err)
		}
		buf.Release()
		fresh.wantObject(tk, object(t, "x"))
		s.Close()
		fresh.close()
		old.wantInUse(0)
	})
}

// TestT02ManyAtOnce: 200 transfers at once through memory for 4. Each ends, in order, and a deadline
// counts from when its request came, not from when the machine got round to it.
func TestT02ManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		s := w.sender()
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				tks, err := w.Grant(ctx, []Want{want(name(i))})
				if err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
				buf := bufIn(t, w.from, object(t, name(i)))
				defer buf.Release()
				time.Sleep(100 * time.Millisecond) // as an encode would take
				if err := s.Send(ctx, tks[0].Grant(), buf); err != nil {
					t.Errorf("%d: %v", i, err)
				}
				w.wantObject(tks[0], object(t, name(i)))
			})
		}
		wg.Wait()
		s.Close()
		w.close()
	})
}
