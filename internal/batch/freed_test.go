// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// witness notes whose rows are computed, in their order.
type witness struct {
	engine.Runner
	log []string
}

func (w *witness) PrefillRows(seq, pos int, p embedding.Part, from, n int, rows []byte) error {
	v := rows[1] // as picture writes them
	w.log = append(w.log, fmt.Sprintf("rows of %d", v))
	return w.Runner.PrefillRows(seq, pos, p, from, n, rows)
}

// show runs a prompt in which the pictures 1, 2 ... stand in the order of uses, in pieces of 16, and returns what
// was computed and freed, repetitions left out. deliver gives the pictures, by item.
func show(t *testing.T, cells int, uses []int, deliver func(w *witness, give func(i int))) []string {
	t.Helper()
	w := &witness{Runner: newModel(t, 2, 512, cells).Runner()}
	s := newScheduler(t, w, Config{StepTokens: 16})
	r := Request{Cells: 1, Next: func([]float32) (int32, bool, error) { w.log = append(w.log, "token"); return 0, false, nil }}
	r.Freed = func(i int) { w.log = append(w.log, fmt.Sprintf("freed %d", i+1)) }
	for _, i := range uses {
		r.Prompt = append(r.Prompt, Segment{Tokens: words(int32(i), 3), Item: -1}, Segment{Item: i})
		r.Cells += 3 + 42
	}
	for i := range slices.Max(uses) + 1 {
		r.Names = append(r.Names, fmt.Sprint("picture ", i))
	}
	r.Prompt = append(r.Prompt, Segment{Tokens: words(9, 1), Item: -1})
	h, err := s.Submit(r)
	if err != nil {
		t.Fatal(err)
	}
	deliver(w, func(i int) {
		layout, rows := picture(byte(i+1), 40)
		h.Deliver(i, layout, rows)
	})
	await(t, h)
	if h.Err() != nil {
		t.Error(h.Err())
	}
	return slices.Compact(w.log)
}

// TestFreedAfterItsLastUse: an embedding is let go of as soon as the piece of the prompt that shows it last is
// computed, and not before all have come or while the memory can run out.
func TestFreedAfterItsLastUse(t *testing.T) {
	both := func(_ *witness, give func(int)) { give(1); give(0) }
	f := func(name string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	f("one after the other", show(t, 0, []int{0, 1}, both),
		"rows of 1", "freed 1", "rows of 2", "freed 2", "token")
	f("the first is shown again", show(t, 0, []int{0, 1, 0}, both),
		"rows of 1", "rows of 2", "freed 2", "rows of 1", "freed 1", "token")
	f("the memory can run out", show(t, 512, []int{0, 1}, both),
		"rows of 1", "rows of 2", "token", "freed 1", "freed 2")
	synctest.Test(t, func(t *testing.T) {
		f("the second is late", show(t, 0, []int{0, 1}, func(w *witness, give func(int)) {
			give(0)
			synctest.Wait() // all is computed that can be
			w.log = append(w.log, "the second comes")
			give(1)
		}), "rows of 1", "the second comes", "freed 1", "rows of 2", "freed 2", "token")
	})
}
