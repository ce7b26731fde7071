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
		first := <-ask(0)
		l.deliver(lineItem(0), first[0].ticket.Grant())
		h, _, err := first[0].wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.p.admit(lineItem(0).Key, &h); err != nil { // 0 is resident: one unit of four
			t.Fatal(err)
		}
		h.buf.Release()
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
