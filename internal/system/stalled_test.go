// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/client"
	"afterimage/internal/control"
	"afterimage/internal/gateway"
)

// stall has the first encode call to one of the fleet's Encoders wait until release, and that Encoder say from then on
// that a call into its engine does not return. It returns the Encoder once that is so.
func (f *fleet) stall(t *testing.T) (stalled func() *enc, release func()) {
	t.Helper()
	var at atomic.Pointer[enc]
	over := make(chan struct{})
	for _, e := range f.encoders {
		a := e.announcement(t)
		a.Ready, a.Reason = false, control.Stalled+" for more than 20s"
		say := answers(http.StatusOK, string(must[[]byte](t)(json.Marshal(a))))
		e.fail(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == control.PathWorker && at.Load() == e {
				say(w, r)
				return true
			}
			if r.URL.Path == control.PathEncode && at.CompareAndSwap(nil, e) {
				select {
				case <-over:
				case <-r.Context().Done():
				}
			}
			return false
		})
	}
	stalled = func() *enc {
		eventually(t, "the gateway hears of the call that does not return", func() bool {
			return at.Load() != nil && !f.allUp(t)
		})
		return at.Load()
	}
	return stalled, func() {
		for _, e := range f.encoders {
			e.heal()
		}
		close(over)
	}
}

// G05: nothing more goes to an Encoder with a call into its engine that does not return, neither its pictures nor requests
// for the one that it stands still with; what waits for it is answered when the call returns after all.
func TestStalledEncoder(t *testing.T) {
	f := newFleet(t, func(o *options) {
		o.p2p, o.residents, o.itemWait = true, 0, time.Hour // each request needs an Encoder, and nobody gives up waiting for one
		o.gateway = func(c *gateway.Config) { c.EncodeTimeout, c.SilenceLimit = time.Hour, time.Hour }
	})
	stalled, release := f.stall(t)
	ask := func(shade byte) (client.Answer, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return f.client.Ask(ctx, client.Question{Text: "q", Images: [][]byte{picture(t, 40, 30, shade)}}, nil)
	}
	type outcome struct {
		client.Answer
		err error
	}
	first := make(chan outcome, 1)
	go func() {
		a, err := ask(0)
		first <- outcome{a, err}
	}()
	bad := stalled()
	var same client.Answer
	for shade := range byte(8) { // of the first, and of some that are the Encoder's by their names
		a, err := ask(shade)
		if err != nil || a.Attempts != 1 || a.Items[0].Encoder == bad.announcement(t).Name {
			t.Errorf("picture %d: %+v, %v; want the other Encoder's at once", shade, a, err)
		}
		if shade == 0 {
			same = a
		}
	}
	release()
	if a := <-first; a.err != nil || a.Text != same.Text {
		t.Errorf("what waited for it: %+v, %v; want %q", a.Answer, a.err, same.Text)
	}
	eventually(t, "it is back", func() bool { return f.allUp(t) })
}
