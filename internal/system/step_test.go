// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"afterimage/internal/control"
)

// step is a call at which a role dies: before it has done its part, or when it is done and has not said so.
type step struct {
	path  string
	after bool
}

func (s step) String() string {
	if s.after {
		return s.path + ", done"
	}
	return s.path
}

// kill has the first call to s.path that reaches one of nodes break, as the death of its process would.
// restart, if any, is what comes in its place.
func kill(s step, restart func(), nodes ...*node) {
	var dead atomic.Bool
	for _, n := range nodes {
		n.fail(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != s.path || !dead.CompareAndSwap(false, true) {
				return false
			}
			if s.after {
				n.role.Load().ServeHTTP(httptest.NewRecorder(), r)
			}
			if restart != nil {
				restart()
			}
			hangUp(w, r)
			return true
		})
	}
}

// encodersFree says whether no Encoder holds more memory than its cache does.
func (f *fleet) encodersFree() bool {
	for _, e := range f.encoders {
		kept, st := e.cache.Stats(), e.arena.Stats()
		own := kept.Bytes - kept.Foreign
		if st.Reserved != 0 || st.Committed < own || st.Committed > own+64*int64(kept.Entries) { // ranges are aligned
			return false
		}
	}
	return true
}

// TestEachRoleDiesAtEachStep: whoever dies, whenever, in either mode, the request is repaired, or refused with 503
// while the only P/D is away: its answer is the right one, and no memory stays behind. One picture is known to the fleet, one is not.
func TestEachRoleDiesAtEachStep(t *testing.T) {
	encoder := []step{{control.PathGeometry, false}, {control.PathGeometry, true}, {control.PathEncode, false}, {control.PathEncode, true}}
	prefill := []step{{control.PathPrepare, false}, {control.PathPrepare, true}, {control.PathChat, false}, {control.PathChat, true}}
	seed := uint8(0)
	for mode, change := range map[string]func(*options){
		"direct": func(*options) {},
		"p2p":    func(o *options) { o.p2p, o.residents = true, 0 },
	} {
		f := newFleet(t, change)
		check := func(name string, arm func()) {
			t.Helper()
			seed++
			known, fresh := picture(t, 60, 60, seed), picture(t, 28+int(seed), 90, seed) // of a size that nobody has asked for
			f.ask(t, "", known)
			arm()
			status, header, body := f.post(t, nil, messages(turn{known, "and", fresh, "?"})...)
			for status == http.StatusServiceUnavailable && header.Get("Retry-After") != "" { // the only P/D was away
				status, header, body = f.post(t, nil, messages(turn{known, "and", fresh, "?"})...)
			}
			if got, want := content(t, status, body), reference(t, nil, turn{known, "and", fresh, "?"}); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
			for _, e := range f.encoders {
				e.heal()
			}
			f.prefill.heal()
			eventually(t, name+": all are up, the memory is back", func() bool { return f.allUp(t) && f.free() && f.encodersFree() })
		}
		for _, s := range encoder {
			check(fmt.Sprintf("%s: an Encoder at %v", mode, s), func() {
				kill(s, nil, f.encoders[0].node, f.encoders[1].node)
			})
		}
		for _, s := range prefill {
			check(fmt.Sprintf("%s: P/D at %v", mode, s), func() { kill(s, nil, f.prefill) })
			check(fmt.Sprintf("%s: P/D at %v, and another is in its place", mode, s), func() {
				kill(s, func() { f.restartPrefill() }, f.prefill)
			})
		}
		// The Store goes last, since it does not come back here.
		check(mode+": the Store at prepare", func() {
			f.prefill.once(control.PathPrepare, func(http.ResponseWriter, *http.Request) bool { f.stopStore(); return false })
		})
		check(mode+": the Store is gone", func() {})
	}
	for _, path := range []string{control.PathEncode, control.PathChat} {
		f := newFleet(t, forgetful)
		file := picture(t, 60, 60, 200)
		want := f.ask(t, "", file).Text
		f.published(t, 0)
		f.published(t, 1)
		for _, n := range []*node{f.encoders[0].node, f.encoders[1].node, f.prefill} {
			n.once(path, func(http.ResponseWriter, *http.Request) bool { f.stopStore(); return false })
		}
		fresh := picture(t, 60, 60, 201)
		status, _, body := f.post(t, nil, messages(turn{file, fresh, "?"})...)
		if got := content(t, status, body); got != reference(t, nil, turn{file, fresh, "?"}) {
			t.Errorf("the Store at %s: %q", path, got)
		}
		if a := f.ask(t, "", file); a.Text != want {
			t.Errorf("after the Store died at %s: %q, want %q", path, a.Text, want)
		}
		eventually(t, "the memory is back", f.free)
	}
}
