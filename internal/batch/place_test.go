// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPlace(t *testing.T) {
	f := func(name string, s space, want moves, views ...view) {
		t.Helper()
		for i := range views {
			views[i].id = i
		}
		if d := cmp.Diff(want, place(s, views), cmp.AllowUnexported(moves{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	two := space{sequences: 2, cells: 100}
	f("two fit", two, moves{admit: []int{0, 1}}, view{prompt: 10, ready: 5}, view{prompt: 10, ready: 5}, view{prompt: 10, ready: 5})
	f("memory decides", two, moves{admit: []int{0}}, view{prompt: 60, ready: 5}, view{prompt: 60, ready: 5})
	f("nobody overtakes", two, moves{admit: []int{0}}, view{prompt: 60, ready: 5}, view{prompt: 60, ready: 5}, view{prompt: 5, ready: 5})
	f("except one that could not start", two, moves{admit: []int{1}}, view{prompt: 10}, view{prompt: 10, ready: 5})
	f("one alone always fits", space{1, 5}, moves{admit: []int{0}}, view{prompt: 60, ready: 5})
	f("an answer grows past the memory", two, moves{preempt: []int{1}},
		view{held: true, decode: true, cells: 60}, view{held: true, decode: true, cells: 39})
	f("who waits gives up first", two, moves{preempt: []int{0}},
		view{held: true, cells: 60, prompt: 60}, view{held: true, decode: true, cells: 39})
	f("who waits gives way to who can work", two, moves{preempt: []int{1}, admit: []int{2}},
		view{held: true, decode: true, cells: 5}, view{held: true, cells: 10, prompt: 20}, view{prompt: 10, ready: 5})
	f("and not to who waits, too", two, moves{},
		view{held: true, decode: true, cells: 5}, view{held: true, cells: 10, prompt: 20}, view{prompt: 10})
	f("who works keeps its place", two, moves{},
		view{held: true, decode: true, cells: 5}, view{held: true, cells: 10, prompt: 20, ready: 5}, view{prompt: 10, ready: 5})
}

func TestShare(t *testing.T) {
	f := func(budget int, want []allowance, views ...view) {
		t.Helper()
		for i := range views {
			views[i].id, views[i].held = i, true
		}
		if d := cmp.Diff(want, share(budget, views), cmp.AllowUnexported(allowance{})); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	f(10, nil)
	f(10, []allowance{{0, 10}}, view{ready: 20, least: 2}, view{ready: 20, least: 2})
	f(10, []allowance{{1, 10}}, view{ready: 20, least: 2, served: 3}, view{ready: 20, least: 2, served: 1})
	f(10, []allowance{{0, 4}, {1, 6}}, view{ready: 4, least: 2}, view{ready: 20, least: 2})
	f(10, []allowance{{0, 9}}, view{ready: 9, least: 2}, view{ready: 20, least: 2}) // no scraps
	f(10, []allowance{{0, 64}}, view{ready: 70, least: 64})
	f(10, []allowance{{0, 4}}, view{ready: 4, least: 2}, view{ready: 70, least: 64})
	f(10, []allowance{{2, 5}}, view{decode: true}, view{}, view{ready: 5, least: 2})
}

// sim is a request of the simulation: its prompt comes in bursts, as embeddings do.
type sim struct {
	view
	arrive int // step
	known  int // cells of the prompt that are known
	slow   int // steps until more is known
	tokens int // still to decode
	length int // of the whole prompt
}

// TestEveryRequestEnds lets requests of all kinds loose on place and share: the memory is never
// overdrawn, and every request ends within the steps that it and all before it need.
func TestEveryRequestEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := space{sequences: rapid.IntRange(1, 4).Draw(t, "sequences"), cells: rapid.IntRange(40, 120).Draw(t, "cells")}
		budget := rapid.IntRange(2, 20).Draw(t, "budget")
		var all []*sim
		work := 0
		for i := range rapid.IntRange(1, 12).Draw(t, "requests") {
			r := &sim{
				arrive: rapid.IntRange(0, 30).Draw(t, "arrive"), length: rapid.IntRange(2, 25).Draw(t, "prompt"),
				slow: rapid.IntRange(0, 20).Draw(t, "slow"), tokens: rapid.IntRange(1, 14).Draw(t, "tokens"),
			}
			r.id, r.prompt = i, r.length
			r.known = rapid.IntRange(0, r.length).Draw(t, "known")
			work += 40 + 20*(r.length+r.tokens)
			all = append(all, r)
		}
		live := slices.Clone(all)
		slices.SortStableFunc(live, func(a, b *sim) int { return a.arrive - b.arrive })
		for i, r := range live {
			r.id = i
		}
		for step := 0; len(live) > 0; step++ {
			if step > work*len(all) {
				t.Fatalf("%d requests never end", len(live))
			}
			live = simulate(t, s, budget, step, live)
		}
	})
}

// simulate does one step and returns the requests that have not ended.
func simulate(t *rapid.T, s space, budget, step int, live []*sim) []*sim {
	views := func() (out []view) {
		for _, r := range live {
			if r.arrive <= step {
				if r.slow--; r.slow < 0 {
					r.known = r.length
				}
				r.decode = r.held && r.cells >= r.length
				r.ready, r.least = max(0, r.known-r.cells), 1
				if r.decode {
					r.ready = 0
				}
				out = append(out, r.view)
			}
		}
		return out
	}
	find := func(id int) *sim { return live[slices.IndexFunc(live, func(r *sim) bool { return r.id == id })] }
	m := place(s, views())
	for _, id := range m.preempt {
		r := find(id)
		r.held, r.decode, r.cells = false, false, 0
	}
	for _, id := range m.admit {
		find(id).held = true
	}
	held, used := 0, 0
	for _, r := range live {
		if r.held {
			held++
			used += r.reserve()
		}
	}
	if held > s.sequences || used > s.cells && held > 1 {
		t.Fatalf("%d sequences of %d, %d cells of %d", held, s.sequences, used, s.cells)
	}
	for _, r := range live {
		if r.decode && r.held {
			r.cells++
			r.tokens--
		}
	}
	given := 0
	for _, a := range share(budget, views()) {
		r := find(a.id)
		r.cells += a.n
		r.served = step
		given += a.n
	}
	if given > max(budget, 1) {
		t.Fatalf("%d entries in a step of %d", given, budget)
	}
	return slices.DeleteFunc(live, func(r *sim) bool { return r.tokens <= 0 })
}
