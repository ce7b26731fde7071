// SPDX-License-Identifier: Apache-2.0

//go:build !race

package resolve

import (
	"context"
	"fmt"
	"testing"
	"time"

	"afterimage/internal/cache"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// nothing is a Store that has no object and allocates nothing. The race detector makes pools forget, so
// this runs without it.
type nothing struct {
	store.Store
	states []store.State
	calls  int
	lends  bool
}

func (n *nothing) Exists(_ context.Context, keys []embedding.Key) ([]store.State, error) {
	n.calls++
	return n.states[:len(keys)], nil
}

func (n *nothing) Capabilities() store.Capabilities {
	return store.Capabilities{Lends: n.lends, Unsized: true}
}

// NoneStored is what a lender knows by itself.
func (n *nothing) NoneStored([]embedding.Key) bool { return n.lends }

func TestFullMissAllocatesNothing(t *testing.T) {
	s := &nothing{states: make([]store.State, 64)}
	r, err := New(Config{Cache: cache.New(1 << 20), Store: s, Protocol: embedding.A1, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 4, 16, 64} {
		items, results := make([]Item, n), make([]Result, n)
		for i := range items {
			items[i] = item(fmt.Sprint("absent ", i), 3, 8)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		s.calls = 0
		runs := 0
		allocs := testing.AllocsPerRun(100, func() {
			r.ResolveOr(ctx, items, results, nil)
			runs++
		})
		cancel()
		if allocs != 0 {
			t.Errorf("%d misses: %v allocations, want none", n, allocs)
		}
		if s.calls != runs {
			t.Errorf("%d misses: %d exists calls in %d runs, want one each", n, s.calls, runs)
		}
		if results[n-1].Reason != Absent {
			t.Errorf("reason %q, want %q", results[n-1].Reason, Absent)
		}
	}
}

// Where the Store is known to have nothing, there is no call, and no context for one.
func TestKnownMissAllocatesNothing(t *testing.T) {
	s := &nothing{lends: true}
	r, err := New(Config{Store: s, Protocol: embedding.A1, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	items, results := []Item{item("a", 3, 8), item("b", 3, 8)}, make([]Result, 2)
	if allocs := testing.AllocsPerRun(100, func() { r.ResolveOr(t.Context(), items, results, nil) }); allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
	if s.calls != 0 || results[1].Reason != Absent {
		t.Errorf("%d calls, reason %q", s.calls, results[1].Reason)
	}
}
