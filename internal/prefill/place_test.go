// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"testing"
	"testing/synctest"

	"afterimage/internal/control"
)

// TestClaimKeepsItsPlace: a request whose residents left while it waited has what it needs instead before those
// that came after it.
func TestClaimKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		ask := func(items ...int) (done chan []supply) {
			var req control.PrepareRequest
			for _, i := range items {
				req.Items = append(req.Items, lineItem(i))
			}
			done = make(chan []supply, 1)
			go func() {
				out, _, err := l.p.supply(t.Context(), &req)
				if err != nil {
					t.Errorf("%v: %v", items, err)
				}
				done <- out
			}()
			synctest.Wait()
			return done
		}
		leave := func(out []supply) {
			(&prepared{supplies: out, kept: l.residents}).cancel()
			synctest.Wait()
		}
		l.keep(0)
		other := <-ask(1, 2) // three units
		early := ask(0, 3)   // counts on the resident, lacks two units
		late := ask(4, 6)    // two units
		l.residents.remove(lineItem(0).Key)
		leave(other)
		select {
		case out := <-early:
			leave(out)
		default:
			t.Error("the request that came first waits, though there is memory")
		}
		leave(<-late)
		if t.Failed() {
			leave(<-early)
		}
		l.close()
	})
}

// keep makes a resident of the picture called i.
func (l *line) keep(i int) {
	l.t.Helper()
	it := lineItem(i)
	out, _, err := l.p.supply(l.t.Context(), &control.PrepareRequest{Items: []control.PrepareItem{it}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.deliver(it, out[0].ticket.Grant())
	h, _, err := out[0].wait(l.t.Context())
	if err == nil {
		err = l.p.admit(&it, &h)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	h.buf.Release()
}

// TestWaitingHoldsNothing: a request that finds one of its residents unfit holds the others no longer than it takes to
// find out: while it waits in line, those before it can have their memory.
func TestWaitingHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		l.keep(0)
		l.keep(2)
		before, err := l.p.cfg.Receiver.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		unfit := lineItem(2)
		unfit.Tokens++
		done := make(chan []supply, 1)
		go func() {
			out, _, err := l.p.supply(t.Context(), &control.PrepareRequest{Items: []control.PrepareItem{lineItem(0), unfit}})
			if err != nil {
				t.Error(err)
			}
			done <- out
		}()
		synctest.Wait()
		if freed := (room{l.residents}).Evict(lineUnit); freed < lineUnit {
			t.Errorf("%d bytes are free for the request before it, want %d: one that waits holds a resident", freed, lineUnit)
		}
		before.Leave()
		(&prepared{supplies: <-done, kept: l.residents}).cancel()
		l.close()
	})
}
