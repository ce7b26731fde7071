// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// TestFreedWhenNoChoiceReads: the memory of an embedding is back when the last of all choices lets go of it,
// and that of another stays.
func TestFreedWhenNoChoiceReads(t *testing.T) {
	pool, err := arena.New(arena.Config{Name: "test", Bytes: 2 * 64})
	if err != nil {
		t.Fatal(err)
	}
	entry := &prepared{items: make([]control.PrepareItem, 2)}
	a := newAnswer(&Prefill{}, &openai.Options{}, nil, entry, time.Time{}, "id")
	a.readers = []int{2, 2}
	for i := range a.held {
		buf, err := pool.Reserve(64)
		if err != nil {
			t.Fatal(err)
		}
		buf.Commit()
		a.held[i].buf = buf
	}
	f := func(what string, want int64) {
		t.Helper()
		if got := pool.Stats().Committed; got != want {
			t.Errorf("%s: %d bytes are held, want %d", what, got, want)
		}
	}
	a.freed(0)
	f("one of two choices has let go", 2*64)
	a.freed(0)
	f("both have let go of the first", 64)
	a.freed(1)
	a.release()
	f("the answer has ended", 0)
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}
