// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// op is one step of a random history.
type op struct {
	Kind string
	Arg  int
	Wait bool // let everything settle before the next step
}

var kinds = []string{"grant", "grant shared", "reserve", "send", "send wrong", "half", "cancel", "claim", "abandon", "pass time", "cut", "close"}

// TestHistories runs random interleavings of everything that can happen to transfers. Whatever the
// order, no wrong object is handed out and every reference comes back.
func TestHistories(t *testing.T) {
	gen := rapid.Custom(func(t *rapid.T) op {
		return op{rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.IntRange(0, 20).Draw(t, "arg"), rapid.Bool().Draw(t, "wait")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		ops := rapid.SliceOfN(gen, 1, 60).Draw(rt, "ops")
		synctest.Test(t, func(t *testing.T) { runHistory(t, ops) })
		if t.Failed() {
			rt.Fatalf("history %v", ops)
		}
	})
}

// history is the state of one run.
type history struct {
	*world
	s   Sender
	ctx context.Context
	wg  sync.WaitGroup

	mu      sync.Mutex
	tickets []*ticket
	names   []string
}

func runHistory(t *testing.T, ops []op) {
	w := newWorld(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	h := &history{world: w, s: w.sender(), ctx: ctx}
	for i, o := range ops {
		h.run(i, o)
		if o.Wait {
			synctest.Wait()
		}
	}
	if err := h.receiver.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := h.s.Close(); err != nil {
		t.Error(err)
	}
	h.wg.Wait()
	w.wantInUse(0)
	if st := w.from.Stats(); st.Reserved+st.Committed != 0 {
		t.Errorf("sender's arena has %d bytes reserved and %d committed", st.Reserved, st.Committed)
	}
	if len(w.live) != 0 {
		t.Errorf("%d transfers are still alive", len(w.live))
	}
}

// run starts one step, in a goroutine of its own where it may block.
func (h *history) run(i int, o op) {
	switch o.Kind {
	case "grant":
		h.wg.Go(func() { h.ask(fmt.Sprint(i), 1+o.Arg%3) })
		return
	case "grant shared": // the same few objects for many
		h.wg.Go(func() { h.ask("shared", 1+o.Arg%2) })
		return
	case "pass time":
		time.Sleep(time.Duration(o.Arg) * 2 * time.Second)
		return
	case "cut":
		h.receiver.mu.Lock()
		for s := range h.sessions {
			s.nc.Close()
		}
		h.receiver.mu.Unlock()
		return
	case "close":
		if o.Arg == 0 {
			h.wg.Go(func() { h.receiver.Close() })
		}
		return
	}
	tk, name := h.pick(o.Arg)
	if tk == nil {
		return
	}
	switch o.Kind {
	case "send":
		h.wg.Go(func() { h.send(tk, name) })
	case "reserve":
		h.wg.Go(func() {
			takeBack, err := announce(h.ctx, h.s, tk.Grant())
			if err == nil && o.Arg%2 == 1 {
				time.Sleep(time.Duration(o.Arg) * 200 * time.Millisecond)
				takeBack("gave up")
			}
		})
	case "send wrong":
		h.wg.Go(func() { h.send(tk, "wrong") })
	case "half":
		h.wg.Go(func() { h.half(tk, name, o.Arg) })
	case "cancel":
		tk.Cancel()
	case "claim":
		h.wg.Go(func() {
			ctx, cancel := context.WithTimeout(h.ctx, time.Duration(o.Arg)*time.Second)
			defer cancel()
			h.wantObjectOrNone(ctx, tk, object(h.t, name))
		})
	case "abandon":
		h.wg.Go(func() {
			ctx, cancel := context.WithCancel(h.ctx)
			cancel()
			buf := h.buf(object(h.t, name))
			defer buf.Release()
			_ = h.s.Send(ctx, tk.Grant(), buf)
		})
	}
}

// ask adds n tickets, unless there is no room for a while.
func (h *history) ask(prefix string, n int) {
	ctx, cancel := context.WithTimeout(h.ctx, 3*time.Second)
	defer cancel()
	var wants []Want
	for k := range n {
		wants = append(wants, want(fmt.Sprint(prefix, k)))
	}
	got, err := h.Grant(ctx, wants)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, tk := range got {
		h.tickets = append(h.tickets, tk.(*ticket))
		h.names = append(h.names, fmt.Sprint(prefix, k))
	}
}

func (h *history) pick(i int) (*ticket, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.tickets) == 0 {
		return nil, ""
	}
	i %= len(h.tickets)
	return h.tickets[i], h.names[i]
}

func (h *history) send(tk *ticket, name string) {
	buf := h.buf(object(h.t, name))
	defer buf.Release()
	if err := h.s.Send(h.ctx, tk.Grant(), buf); !classed(err) {
		h.t.Errorf("%v has no class", err)
	}
}

// half writes part of an object by hand and leaves after some time, dead or alive.
func (h *history) half(tk *ticket, name string, arg int) {
	nc, err := h.pipe.Dial(h.ctx, "", "")
	if err != nil {
		return
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := nc.Write(appendText(nil, header{Type: frameHello}, h.me.encode())); err != nil {
		return
	}
	if hd, err := readHeader(nc); err != nil {
		return
	} else if _, err := readText(nc, hd); err != nil {
		return
	}
	obj := object(h.t, name)
	if _, err := nc.Write(append(data(tk).append(nil), obj[:len(obj)*arg/20]...)); err == nil {
		time.Sleep(time.Duration(arg) * 200 * time.Millisecond)
	}
}
