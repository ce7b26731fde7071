// SPDX-License-Identifier: Apache-2.0

package transport

import "testing"

// TestNext holds the whole state machine: each state and each event.
func TestNext(t *testing.T) {
	type row [nEvents]step // by event: data, complete, fail, abandon, claim, cancel, expire
	stay := func(s state) step { return step{s, ignore} }
	all := func(s state) (r row) {
		for e := range r {
			r[e] = stay(s)
		}
		return r
	}
	want := [nStates]row{
		granted: {{writing, fill}, stay(granted), {failed, free}, {failed, free}, stay(granted),
			{cancelled, free}, {expired, free}},
		writing: {stay(writing), {ready, commit}, {failed, free}, stay(writing), stay(writing),
			{cancelPending, nudge}, {expirePending, nudge}},
		cancelPending: {stay(cancelPending), {cancelled, free}, {cancelled, free}, stay(cancelPending), stay(cancelPending),
			stay(cancelPending), stay(cancelPending)},
		expirePending: {stay(expirePending), {expired, free}, {expired, free}, stay(expirePending), stay(expirePending),
			{cancelPending, ignore}, stay(expirePending)},
		ready: {stay(ready), stay(ready), stay(ready), stay(ready), {claimed, handOver},
			{cancelled, free}, {expired, free}},
		claimed:   all(claimed),
		failed:    all(failed),
		cancelled: all(cancelled),
		expired:   all(expired),
	}
	for s := range nStates {
		for e := range nEvents {
			to, do := next(s, e)
			if got := (step{to, do}); got != want[s][e] {
				t.Errorf("%v + %v: got %v, %v; want %v, %v", s, e, to, do, want[s][e].to, want[s][e].do)
			}
		}
	}
}

// The memory of a transfer is given up exactly once on every path: by free or by hand over, which lead
// to terminal states and nowhere else.
func TestNextGivesMemoryUpOnce(t *testing.T) {
	for s := range nStates {
		for e := range nEvents {
			to, do := next(s, e)
			gives := do == free || do == handOver
			if gives != (to.terminal() && !s.terminal()) {
				t.Errorf("%v + %v: %v leads to %v", s, e, do, to)
			}
		}
	}
}

// While a writer holds the memory, only its own events may free it.
func TestNextNeverFreesUnderAWriter(t *testing.T) {
	for _, s := range []state{writing, cancelPending, expirePending} {
		for e := range nEvents {
			if _, do := next(s, e); (do == free || do == handOver) && e != evComplete && e != evFail {
				t.Errorf("%v + %v: %v under a live writer", s, e, do)
			}
		}
	}
}

func TestLateStatus(t *testing.T) {
	want := map[state]status{
		granted: statusBusy, writing: statusBusy, cancelPending: statusCancelled, expirePending: statusExpired,
		ready: statusComplete, claimed: statusComplete, failed: statusFailed, cancelled: statusCancelled, expired: statusExpired,
	}
	for s := range nStates {
		if got := lateStatus(s); got != want[s] {
			t.Errorf("%v: got %v, want %v", s, got, want[s])
		}
	}
}
