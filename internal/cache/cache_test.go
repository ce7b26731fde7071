// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kib = 1024

// rig is a cache over an arena that must be empty when the test ends.
type rig struct {
	*Cache
	t testing.TB
	a *arena.Arena
}

func newRig(t testing.TB, maxBytes int64) *rig {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "cache-test", Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Cache: New(maxBytes), t: t, a: a}
	t.Cleanup(func() {
		r.Close()
		if err := a.Close(); err != nil { // fails when references are left
			t.Error(err)
		}
	})
	return r
}

// object returns a committed Buf of n bytes, whose one reference is the caller's.
func (r *rig) object(n int) *arena.Buf {
	r.t.Helper()
	b, err := r.a.Reserve(n)
	if err != nil {
		r.t.Fatal(err)
	}
	b.Commit()
	return b
}

// put stores a fresh object of n bytes that only the cache holds afterwards.
func (r *rig) put(key embedding.Key, n int) {
	r.t.Helper()
	b := r.object(n)
	r.Put(key, b, embedding.Meta{Rows: n})
	b.Release()
}

// holds checks which keys are cached, and in which order they were used.
func (r *rig) holds(keys ...embedding.Key) {
	r.t.Helper()
	var got []embedding.Key
	r.mu.Lock()
	for el := r.recent.Front(); el != nil; el = el.Next() {
		got = append(got, el.Value.(*entry).key)
	}
	r.mu.Unlock()
	if diff := cmp.Diff(keys, got); diff != "" {
		r.t.Errorf("most recent first (-want +got):\n%s", diff)
	}
}

func (r *rig) inUse(want int64) {
	r.t.Helper()
	if got := r.a.Stats().Committed; got != want {
		r.t.Errorf("%d bytes of the arena in use, want %d", got, want)
	}
}

func TestGetPut(t *testing.T) {
	r := newRig(t, 10*kib)
	if _, _, ok := r.Get("a"); ok {
		t.Error("hit in an empty cache")
	}
	b := r.object(kib)
	meta := embedding.Meta{Rows: 2, Cols: 128, DType: embedding.Float32}
	r.Put("a", b, meta)
	got, m, ok := r.Get("a")
	if !ok || got != b || m.Rows != meta.Rows || m.Cols != meta.Cols {
		t.Fatalf("got %p %+v %v, want %p %+v", got, m, ok, b, meta)
	}
	got.Release()
	b.Release()
	r.inUse(kib)
	want := Stats{Entries: 1, Bytes: kib, MaxBytes: 10 * kib, MaxForeign: 10 * kib, Hits: 1, Misses: 1}
	if got := r.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestLeastRecentlyUsedLeaves(t *testing.T) {
	r := newRig(t, 3*kib)
	r.put("a", kib)
	r.put("b", kib)
	r.put("c", kib)
	b, _, _ := r.Get("a")
	b.Release()
	r.put("d", kib)
	r.holds("d", "a", "c")
	r.put("e", 2*kib)
	r.holds("e", "d")
	r.inUse(3 * kib)
	if got := r.Stats(); got.Evictions != 3 || got.Bytes != 3*kib {
		t.Errorf("%+v, want 3 evictions and 3 KiB", got)
	}
}

func TestTooLargeIsNotKept(t *testing.T) {
	r := newRig(t, kib)
	r.put("a", kib)
	r.put("b", kib+1)
	r.holds("a")
	if got := r.Stats().Refused; got != 1 {
		t.Errorf("%d refused, want 1", got)
	}
	off := newRig(t, -1)
	off.put("a", 1)
	off.holds()
}

func TestDuplicatePutChangesNothing(t *testing.T) {
	r := newRig(t, 4*kib)
	r.put("a", kib)
	r.put("b", kib)
	r.put("a", 2*kib)
	r.holds("a", "b")
	b, m, _ := r.Get("a")
	if b.Len() != kib || m.Rows != kib {
		t.Errorf("object of %d bytes, want the first one", b.Len())
	}
	b.Release()
	r.inUse(2 * kib)
}

// C09: an entry in use may leave the cache; its memory lives until the last use.
func TestPinnedMemoryOutlivesItsEntry(t *testing.T) {
	r := newRig(t, kib)
	r.put("a", kib)
	first, _, _ := r.Get("a")
	second, _, _ := r.Get("a")
	r.put("b", kib)
	r.holds("b")
	r.inUse(2 * kib)
	first.Release()
	r.inUse(2 * kib)
	second.Bytes()[0] = 0 // still ours
	second.Release()
	r.inUse(kib)
}

func TestRemove(t *testing.T) {
	r := newRig(t, 4*kib)
	r.put("a", kib)
	r.put("b", kib)
	for range 2 { // the second one finds nothing, which is fine
		r.Remove("a")
	}
	r.holds("b")
	r.inUse(kib)
	if got := r.Stats(); got.Evictions != 0 || got.Bytes != kib {
		t.Errorf("%+v, want no evictions and 1 KiB", got)
	}
}

func TestEvictFreesWhatItSays(t *testing.T) {
	r := newRig(t, 10*kib)
	for _, k := range []embedding.Key{"a", "b", "c", "d"} {
		r.put(k, kib)
	}
	pinned, _, _ := r.Get("a")
	r.put("e", kib)
	if got := r.Evict(kib + 1); got != 2*kib {
		t.Errorf("%d bytes freed, want %d", got, 2*kib)
	}
	r.holds("e", "a", "d")
	r.inUse(3 * kib)
	if got := r.Evict(1 << 40); got != 2*kib {
		t.Errorf("%d bytes freed, want %d: the pinned entry stays", got, 2*kib)
	}
	r.holds("a")
	if got := r.Evict(1); got != 0 { // C11: nothing evictable ends at once
		t.Errorf("%d bytes freed of a pinned entry", got)
	}
	pinned.Release()
	if got := r.Evict(1); got != kib {
		t.Errorf("%d bytes freed, want %d", got, kib)
	}
	r.inUse(0)
}

func TestClose(t *testing.T) {
	r := newRig(t, 4*kib)
	r.put("a", kib)
	pinned, _, _ := r.Get("a")
	r.Close()
	r.Close()
	r.put("b", kib)
	if _, _, ok := r.Get("a"); ok {
		t.Error("hit after Close")
	}
	r.inUse(kib)
	pinned.Release()
	r.inUse(0)
}

// C11: lookups that are cancelled after they pinned leave no reference behind.
func TestCancelledLookups(t *testing.T) {
	r := newRig(t, 8*kib)
	for i := range 8 {
		r.put(embedding.Key(fmt.Sprint(i)), kib)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			b, _, ok := r.Get(embedding.Key(fmt.Sprint(i % 8)))
			if !ok {
				t.Error("miss")
				return
			}
			defer b.Release()
			<-ctx.Done()
		})
	}
	cancel()
	wg.Wait()
	if got := r.Evict(1 << 40); got != 8*kib {
		t.Errorf("%d bytes freed, want %d: references are left", got, 8*kib)
	}
	r.inUse(0)
}

// Goroutines use one small cache at once; every object read is the one of its key.
func TestConcurrentUse(t *testing.T) {
	r := newRig(t, 16*kib)
	var wg sync.WaitGroup
	for id := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(id)))
			for range 500 {
				n := 1 + rng.IntN(32)
				key := embedding.Key(fmt.Sprint(n))
				switch b, _, ok := r.Get(key); {
				case ok:
					if b.Bytes()[0] != byte(n) {
						t.Errorf("key %s has the object of %d", key, b.Bytes()[0])
					}
					b.Release()
				case rng.IntN(8) == 0:
					r.Evict(kib)
				case rng.IntN(8) == 0:
					r.Remove(key)
				default:
					r.fill(key, byte(n))
				}
			}
		})
	}
	wg.Wait()
	if st := r.Stats(); st.Bytes > st.MaxBytes || st.Entries > 16 {
		t.Errorf("bound exceeded: %+v", st)
	}
}

func (r *rig) fill(key embedding.Key, mark byte) {
	b, err := r.a.Reserve(kib)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer b.Release()
	b.Bytes()[0] = mark
	b.Commit()
	r.Put(key, b, embedding.Meta{})
}

func BenchmarkGet(b *testing.B) {
	r := newRig(b, 64*kib)
	r.put("a", kib)
	b.ReportAllocs()
	for b.Loop() {
		buf, _, _ := r.Get("a")
		buf.Release()
	}
}
