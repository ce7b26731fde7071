// SPDX-License-Identifier: Apache-2.0

package system

import (
	"net/http"
	"sync/atomic"
	"testing"

	"afterimage/internal/control"
)

// TestFailingEncoderIsLeftAlone: an Encoder that answers probes and fails every encode costs some requests a repair,
// and then is not asked, until it works again.
func TestFailingEncoderIsLeftAlone(t *testing.T) {
	f := newFleet(t, nil)
	bad := f.encoders[0]
	var calls atomic.Int64
	bad.failOn(control.PathEncode, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		readAll(r.Body)
		w.WriteHeader(http.StatusInternalServerError)
	})
	ejected := func() float64 { return f.gateway.count(t, "afterimage_gateway_ejections_total", "") }
	asked := 0
	ask := func() { // for a picture that nobody has: who has one is asked for it
		f.ask(t, "", picture(t, 60+asked/256, 60, uint8(asked)))
		asked++
	}
	for ejected() == 0 && asked < 100 {
		ask()
	}
	repairs := f.gateway.count(t, "afterimage_gateway_repairs_total", "")
	if ejected() != 1 || repairs < 3 {
		t.Fatalf("%v ejections after %d pictures and %v repairs", ejected(), asked, repairs)
	}
	calls.Store(0)
	for range 40 {
		ask()
	}
	if n := calls.Load(); n > 8 { // half of them are its; after each rest, which is longer each time, it is tried out
		t.Errorf("of 40 pictures it was asked for %d", n)
	}
	works := bad.watch(control.PathEncode)
	eventually(t, "it is asked again", func() bool {
		ask()
		return works.Load() > 0
	})
}

// TestFailingPrefillIsLeftAlone: that a P/D prepares requests well does not make up for answers that fail.
func TestFailingPrefillIsLeftAlone(t *testing.T) {
	f := newFleet(t, nil)
	f.prefill.failOn(control.PathChat, answers(500, "broken"))
	for i := range 3 { // each with its repairs
		f.expect(t, "failing", 503, "", picture(t, 60, 60, uint8(i)))
	}
	if n := f.gateway.count(t, "afterimage_gateway_ejections_total", ""); n < 1 {
		t.Errorf("%v ejections", n)
	}
	f.prefill.heal()
	f.expect(t, "the only one is asked all the same", 200, "choices", picture(t, 60, 60, 9))
}
