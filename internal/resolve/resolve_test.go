// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// From the store the first time, from the cache the second; only what is missing is encoded.
func TestReusePipeline(t *testing.T) {
	both(t, func(t *testing.T, p embedding.Protocol) {
		b := newBench(t, p, nil)
		x, y, z := item("x", 3, 8), item("y", 5, 8), item("z", 7, 8)
		b.plant(x, x, 1)
		b.plant(z, z, 3)
		rs := b.resolve(x, y, z)
		b.hit(rs[0], x, control.SourceStore, 1)
		b.miss(rs[1], Absent)
		b.hit(rs[2], z, control.SourceStore, 3)
		rs = b.resolve(z, x)
		b.hit(rs[0], z, control.SourceLocal, 3)
		b.hit(rs[1], x, control.SourceLocal, 1)
		if n := b.store.Calls(testkit.Exists); n != 1 {
			t.Errorf("%d exists calls, want 1: a full local hit asks nobody", n)
		}
		if n := b.store.Calls(testkit.Get); n != 1 {
			t.Errorf("%d get calls, want one batch", n)
		}
		b.counted("store", "", 2)
		b.counted("local", "", 2)
		b.counted("miss", Absent, 1)
	})
}

// unloadable_inputs_do_not_allocate_staging: a miss and an object over the read buffer take no memory.
func TestUnloadableInputsDoNotAllocate(t *testing.T) {
	b := newBench(t, embedding.A1, func(c *Config) { c.ReadBufferBytes = 1000 })
	large := item("large", 100, 8)
	b.plant(large, large, 1)
	before := b.arena.Stats().Committed
	rs := b.resolve(item("absent", 3, 8), large)
	b.miss(rs[0], Absent)
	b.miss(rs[1], Oversize)
	if n := b.store.Calls(testkit.Get); n != 0 {
		t.Errorf("%d get calls, want none", n)
	}
	if st := b.arena.Stats(); st.Committed != before || st.Reserved != 0 {
		t.Errorf("arena %+v, want %d bytes committed as before", st, before)
	}
	if n := b.srv.Stats().Objects; n != 1 {
		t.Errorf("%d objects in the Store: an oversize one is not wrong and stays", n)
	}
}

// batch_reads_reuse_registration_without_aliasing_outputs: chunks are bounded by the read buffer.
func TestChunks(t *testing.T) {
	f := func(buffer int64, calls int) {
		t.Helper()
		b := newBench(t, embedding.V3, func(c *Config) { c.ReadBufferBytes = buffer })
		items := []Item{item("a", 1, 4), item("b", 1, 4), item("c", 1, 4)} // 24 + 16 bytes each
		for i, it := range items {
			b.plant(it, it, float32(i))
		}
		for i, r := range b.resolve(items...) {
			b.hit(r, items[i], control.SourceStore, float32(i))
		}
		if n := b.store.Calls(testkit.Get); n != calls {
			t.Errorf("buffer %d: %d get calls, want %d", buffer, n, calls)
		}
	}
	f(80, 2)
	f(120, 1)
	f(40, 3)
}

// Case K04 at this level, and incompatible_output_is_a_miss: a wrong object is dropped and counted,
// the caller encodes, and the healthy one beside it is used.
func TestWrongObjectIsDropped(t *testing.T) {
	both(t, func(t *testing.T, p embedding.Protocol) {
		f := func(name string, reason map[embedding.Protocol]Reason, plant func(b *bench, it Item)) {
			t.Helper()
			b := newBench(t, p, nil)
			bad, good := item("image", 275, 8), item("healthy", 3, 8)
			plant(b, bad)
			b.plant(good, good, 2)
			rs := b.resolve(bad, good)
			b.miss(rs[0], reason[p])
			b.hit(rs[1], good, control.SourceStore, 2)
			b.counted("miss", reason[p], 1)
			if n := b.srv.Stats().Objects; n != 1 {
				t.Errorf("%s: %d objects in the Store, want the healthy one only", name, n)
			}
			b.store.Set(testkit.Get, testkit.Fault{})
			b.plant(bad, bad, 9) // what the caller encoded takes the place
			b.hit(b.resolve(bad)[0], bad, control.SourceStore, 9)
		}
		is := func(v3, a1 Reason) map[embedding.Protocol]Reason {
			return map[embedding.Protocol]Reason{embedding.V3: v3, embedding.A1: a1}
		}
		f("rows", is(Contract, Contract), func(b *bench, it Item) { b.plant(it, item("image", 256, 8), 1) })
		f("more rows", is(Contract, Contract), func(b *bench, it Item) { b.plant(it, item("image", 276, 8), 1) })
		f("transposed", is(Contract, Contract), func(b *bench, it Item) { b.plant(it, item("image", 8, 275), 1) })
		mangle := func(b *bench, f func([]byte) []byte) {
			key := item("image", 275, 8).Key
			b.store.Set(testkit.Get, testkit.Fault{
				Mangle: func(_ embedding.Key, o []byte) []byte { return f(o) }, Keys: map[embedding.Key]bool{key: true}})
		}
		f("magic", is(Malformed, Malformed), func(b *bench, it Item) {
			b.plant(it, it, 1)
			mangle(b, func(o []byte) []byte { o[0] ^= 1; return o })
		})
		f("short", is(Malformed, Malformed), func(b *bench, it Item) {
			b.plant(it, it, 1)
			mangle(b, func(o []byte) []byte { return o[:len(o)-4] })
		})
		f("stub", is(Malformed, Malformed), func(b *bench, it Item) {
			b.plant(it, it, 1)
			mangle(b, func(o []byte) []byte { return o[:5] })
		})
		f("long", is(Contract, Contract), func(b *bench, it Item) { // stored under a bound that a reader cannot know
			long := b.object(item("image", 275, 8), 1)
			defer long.Release()
			longer, err := b.arena.Reserve(long.Len() + 1<<17)
			if err != nil {
				b.Fatal(err)
			}
			defer longer.Release()
			copy(longer.Bytes(), long.Bytes())
			longer.Commit()
			if err := b.store.Put(b.Context(), it.Key, longer, store.PutOptions{}); err != nil {
				b.Fatal(err)
			}
		})
		if p == embedding.A1 { // v3 has no means to notice
			f("payload", is("", Corrupt), func(b *bench, it Item) {
				b.plant(it, it, 1)
				mangle(b, func(o []byte) []byte { o[len(o)-1] ^= 1; return o })
			})
			f("other key", is("", Foreign), func(b *bench, it Item) { b.plant(it, item("other", 275, 8), 1) })
		}
	})
}

// Case K04 in the local cache: an entry that its reader cannot use is dropped.
func TestWrongLocalEntry(t *testing.T) {
	b := newBench(t, embedding.A1, nil)
	it := item("image", 256, 8)
	b.plant(it, it, 1)
	b.resolve(it)
	it.Contract.Rows = 275
	b.miss(b.resolve(it)[0], Contract)
	if n := b.cache.Stats().Entries; n != 0 {
		t.Errorf("%d entries in the cache, want none", n)
	}
	if got := testutil.ToFloat64(b.r.Metrics().localDropped); got != 1 {
		t.Errorf("%v local entries counted as dropped, want 1", got)
	}
}

// A P/D knows a bound only: rows come from the object.
func TestUnknownRows(t *testing.T) {
	b := newBench(t, embedding.A1, nil)
	it := item("x", 40, 8)
	b.plant(it, it, 1)
	open := it
	open.Contract.Rows, open.Contract.MaxRows = 0, 39
	b.miss(b.resolve(open)[0], Contract)
	b.plant(it, it, 1)
	open.Contract.MaxRows = 40
	b.hit(b.resolve(open)[0], it, control.SourceStore, 1)
}

// A fault of the Store is a miss, counted by class; nothing is dropped for it, and but for an
// unconfirmed read the next one is a hit.
func TestStoreFaultsAreMisses(t *testing.T) {
	both(t, func(t *testing.T, p embedding.Protocol) {
		f := func(call testkit.Call, err error, want, then Reason) {
			t.Helper()
			b := newBench(t, p, nil)
			x, y := item("x", 3, 8), item("y", 3, 8)
			b.plant(x, x, 1)
			b.plant(y, y, 2)
			b.store.Set(call, testkit.Fault{Err: err})
			for _, r := range b.resolve(x, y) {
				b.miss(r, want)
			}
			b.counted("miss", want, 2)
			if n := b.srv.Stats().Objects; n != 2 {
				t.Errorf("%d objects in the Store, want both", n)
			}
			b.store.Set(call, testkit.Fault{})
			if then != "" {
				b.miss(b.resolve(x)[0], then)
				return
			}
			b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
		}
		for _, call := range []testkit.Call{testkit.Exists, testkit.Get} {
			f(call, store.ErrUnavailable, Unavailable, "")
			f(call, store.ErrRejected, Rejected, "")
			f(call, fmt.Errorf("gone: %w", store.ErrMiss), Absent, "")
		}
		f(testkit.Exists, store.ErrUnconfirmed, Unconfirmed, "")
		f(testkit.Exists, errors.New("no class at all"), Unavailable, "")
		f(testkit.Get, store.ErrUnconfirmed, Unconfirmed, Absent)
		f(testkit.Get, errors.New("no class at all"), Unconfirmed, Absent)
		f(testkit.Get, fmt.Errorf("%w: %w", store.ErrUnconfirmed, context.DeadlineExceeded), Unconfirmed, Absent)
		f(testkit.Get, store.ErrExpired, Expired, "")
	})
}

// Case C01 at the interface: a lease that ran out while the bytes came costs a second read, once.
func TestExpiredLeaseIsReadAgain(t *testing.T) {
	b := newBench(t, embedding.A1, nil)
	x, y := item("x", 3, 8), item("y", 3, 8)
	b.plant(x, x, 1)
	b.plant(y, y, 2)
	b.store.Set(testkit.Get, testkit.Fault{Err: testkit.GetError(testkit.LeaseExpired), Times: 1,
		Keys: map[embedding.Key]bool{x.Key: true}})
	rs := b.resolve(x, y)
	b.hit(rs[0], x, control.SourceStore, 1)
	b.hit(rs[1], y, control.SourceStore, 2)
	if n := b.store.Calls(testkit.Get); n != 2 {
		t.Errorf("%d get calls, want 2", n)
	}
	b.cache.Remove(x.Key)
	b.store.Set(testkit.Get, testkit.Fault{Err: store.ErrExpired})
	b.miss(b.resolve(x)[0], Expired)
	if n := b.store.Calls(testkit.Get); n != 4 {
		t.Errorf("%d get calls, want 4: twice and no more", n)
	}
}

// Case C01: the space of an object was given to another one while it was read. Both are whole objects, so
// only their names differ.
func TestForeignBytesAreNoHit(t *testing.T) {
	b := newBench(t, embedding.A1, nil)
	x, y := item("x", 3, 8), item("y", 3, 8)
	b.plant(x, x, 1)
	other := b.object(y, 2)
	defer other.Release()
	b.store.Set(testkit.Get, testkit.Fault{Mangle: func(embedding.Key, []byte) []byte { return append([]byte(nil), other.Bytes()...) }})
	b.miss(b.resolve(x)[0], Foreign)
}

// A Store that does not answer costs the Timeout and no more.
func TestStalledStoreCostsTheTimeout(t *testing.T) {
	b := newBench(t, embedding.A1, func(c *Config) { c.Timeout = 20 * time.Millisecond })
	x := item("x", 3, 8)
	b.plant(x, x, 1)
	for _, call := range []testkit.Call{testkit.Exists, testkit.Get} {
		b.store.Set(call, testkit.Fault{Hold: make(chan struct{})})
		b.miss(b.resolve(x)[0], Timeout)
		b.store.Set(call, testkit.Fault{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.miss(b.r.Resolve(ctx, []Item{x})[0], Cancelled)
}

func TestEqualItemsShare(t *testing.T) {
	b := newBench(t, embedding.A1, nil)
	x, y := item("x", 3, 8), item("y", 3, 8)
	b.plant(x, x, 1)
	var asked []embedding.Key
	b.store.Set(testkit.Get, testkit.Fault{Mangle: func(k embedding.Key, o []byte) []byte {
		asked = append(asked, k)
		return o
	}})
	rs := b.resolve(x, y, x, y, x)
	for _, i := range []int{0, 2, 4} {
		b.hit(rs[i], x, control.SourceStore, 1)
		if rs[i].Buf != rs[0].Buf {
			t.Errorf("result %d has memory of its own", i)
		}
	}
	b.miss(rs[1], Absent)
	b.miss(rs[3], Absent)
	if !slices.Equal(asked, []embedding.Key{x.Key}) {
		t.Errorf("read %v, want %v once", asked, x.Key)
	}
	other := x
	other.Contract.Rows = 4
	many := make([]Item, 3*scanned)
	for i := range many {
		many[i] = []Item{x, y, other}[i%3]
	}
	for i, r := range b.resolve(many...) {
		if (r.Buf != nil) != (i%3 == 0) {
			t.Errorf("item %d of many: %+v", i, r)
		}
	}
	if n := b.store.Twice(); n != 0 {
		t.Errorf("%d batches named a key twice", n)
	}
}

func TestWithoutStoreOrCache(t *testing.T) {
	b := newBench(t, embedding.A1, func(c *Config) { c.Store = nil })
	b.miss(b.resolve(item("x", 3, 8))[0], NoStore)
	b = newBench(t, embedding.A1, func(c *Config) { c.Cache = nil })
	x := item("x", 3, 8)
	b.plant(x, x, 1)
	for range 2 {
		b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
	}
	if rs := b.r.Resolve(t.Context(), nil); len(rs) != 0 {
		t.Errorf("results of no items: %v", rs)
	}
}

// When the arena is full of cached embeddings, the cache makes room for a hit.
func TestFullArenaEvictsTheCache(t *testing.T) {
	b := newBench(t, embedding.A1, nil)
	x, old := item("x", 1000, 8), item("old", 4000, 8) // 32 KiB and 128 KiB
	b.plant(x, x, 1)
	b.plant(old, old, 2)
	for _, r := range b.r.Resolve(t.Context(), []Item{old}) {
		r.Buf.Release()
	}
	for b.arena.Stats().Largest > 0 { // the rest is in use
		buf, err := b.arena.Reserve(int(b.arena.Stats().Largest))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(buf.Abort)
	}
	b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
	for b.arena.Stats().Largest > 0 {
		buf, _ := b.arena.Reserve(int(b.arena.Stats().Largest))
		t.Cleanup(buf.Abort)
	}
	y := item("y", 1000, 8)
	y.Key = x.Key
	b.cache.Remove(x.Key) // it is held by the test: evicting it frees nothing
	b.miss(b.resolve(y)[0], NoMemory)
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{}, {Protocol: "v2"}, {Protocol: embedding.A1, ReadBufferBytes: -1}, {Protocol: embedding.A1, Timeout: -1}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) succeeded", c)
		}
	}
}
