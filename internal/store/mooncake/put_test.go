// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// filled returns n bytes of a that fill makes.
func filled(t testing.TB, a *arena.Arena, n int, fill byte) *arena.Buf {
	t.Helper()
	b, err := a.Reserve(n)
	if err != nil {
		t.Fatal(err)
	}
	copy(b.Bytes(), pattern(n, fill))
	b.Commit()
	t.Cleanup(b.Release)
	return b
}

// Many objects go to a real server in one call, and each has an outcome of its own. Of two with one key the
// first stays.
func TestPutAll(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a, other := newArena(t, 32<<20), newArena(t, 1<<20)
	c := open(t, Config{Addr: m.Addr()}, a)
	puts := []store.Putting{
		{Key: "all/a", Buf: filled(t, a, 1, 1)},
		{Key: "all/b", Buf: filled(t, a, 8<<20, 2)},
		{Key: "", Buf: filled(t, a, 10, 3)},
		{Key: "all/foreign", Buf: filled(t, other, 10, 4)},
		{Key: "all/a", Buf: filled(t, a, 3, 5)},
		{Key: "all/c", Buf: filled(t, a, 16<<10, 6)},
	}
	errs := c.PutAll(t.Context(), puts)
	for i, want := range []error{nil, nil, store.ErrRejected, store.ErrRejected, nil, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("item %d, key %q: %v, want %v", i, puts[i].Key, errs[i], want)
		}
	}
	for _, i := range []int{0, 1, 5} {
		if err := get(t, c, puts[i].Key, puts[i].Buf.Len(), []byte{1, 2, 0, 0, 0, 6}[i]); err != nil {
			t.Errorf("Get(%s): %v", puts[i].Key, err)
		}
	}
	if st := c.Stats(); st.Put.Calls != 1 || st.Put.OK != 4 || st.Put.Rejected != 2 {
		t.Errorf("counted %+v, want 1 call, 4 stored, 2 rejected", st.Put)
	}
	if errs := c.PutAll(t.Context(), nil); len(errs) != 0 {
		t.Errorf("%d answers to nothing", len(errs))
	}
}

// What finds no room is sent again, alone; the rest is done.
func TestPutAllWithoutRoom(t *testing.T) {
	f, c, _ := startWithFake(t)
	var calls [][]string
	f.set(func(_ uint32, keys []string, mem [][]byte) []int64 {
		calls = append(calls, keys)
		codes := make([]int64, len(keys))
		for i, k := range keys {
			switch {
			case k == "full" || k == "later" && len(calls) < 3:
				codes[i] = int64(codeNoSpace)
			case k == "lost":
				codes[i] = int64(codeTransferFailed)
			case !bytes.Equal(mem[i], pattern(20, 7)):
				t.Errorf("%s: other bytes than were put", k)
			}
		}
		return codes
	})
	var puts []store.Putting
	for _, k := range []embedding.Key{"good", "full", "lost", "later"} {
		puts = append(puts, store.Putting{Key: k, Buf: filled(t, c.arena, 20, 7)})
	}
	errs := c.PutAll(t.Context(), puts)
	for i, want := range []error{nil, store.ErrRejected, store.ErrUnconfirmed, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("%s: %v, want %v", puts[i].Key, errs[i], want)
		}
	}
	want := [][]string{{"good", "full", "lost", "later"}, {"full", "later"}, {"full", "later"}, {"full"}}
	if !slices.EqualFunc(calls, want, slices.Equal) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	if st := c.Stats(); st.QuarantineRanges != 1 {
		t.Errorf("%d ranges in quarantine, want that of the transfer that failed", st.QuarantineRanges)
	}
}

// A batch beyond the bounds of one call goes in several.
func TestWritesPerCall(t *testing.T) {
	f := func(want int, bytes ...int) {
		t.Helper()
		var ws []*write
		for _, n := range bytes {
			ws = append(ws, &write{at: place{bytes: n}})
		}
		if got := writesPerCall(ws); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	f(0)
	f(1, 2*maxBatchBytes)
	f(1, maxBatchBytes, 1)
	f(2, maxBatchBytes-1, 1, 1)
	f(maxBatchKeys, make([]int, maxBatchKeys+1)...)
}
