// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
	"afterimage/internal/testkit"
)

// Case C07: another tier says that it has an object and has not. That is a miss like any other, of that
// item, and neither it nor a restart of the Store in between makes later ones fail or loop.
func TestHintsAreNoPromises(t *testing.T) {
	b := newBench(t, embedding.A1, nil)
	x, y := item("x", 3, 8), item("y", 3, 8)
	b.plant(y, y, 2)
	b.store.Set(testkit.Exists, testkit.Fault{States: func(s []store.State) []store.State {
		for i := range s {
			s[i].Present = true
		}
		return s
	}})
	rs := b.resolve(x, y)
	b.miss(rs[0], Absent)
	b.hit(rs[1], y, control.SourceStore, 2)

	fresh, err := ram.NewLocal(ram.Config{MaxBytes: 4 << 20, Logger: quiet}, b.arena)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.store.Restart(fresh); err != nil {
		t.Fatal(err)
	}
	b.hit(b.resolve(y)[0], y, control.SourceLocal, 2) // what is here is here
	b.cache.Remove(y.Key)
	b.miss(b.resolve(y)[0], Absent)
	b.plant(y, y, 3)
	b.hit(b.resolve(y)[0], y, control.SourceStore, 3)
	for i := range 200 { // evict all, many times over
		z := item(fmt.Sprint("other ", i), 500, 8)
		b.plant(z, z, 1)
		for _, r := range b.r.Resolve(t.Context(), []Item{z}) {
			if r.Buf != nil {
				r.Buf.Release()
			}
		}
	}
	b.miss(b.resolve(x)[0], Absent)
}

// Where others write into the Store, too, an object that does not fit here may fit them. It is a miss and stays.
func TestObjectsOfOthersStay(t *testing.T) {
	b := newBench(t, embedding.V3, func(c *Config) { c.KeepWrong = true })
	it := item("image", 275, 8)
	b.plant(it, item("image", 256, 8), 1)
	b.miss(b.resolve(it)[0], Contract)
	b.r.Forget(t.Context(), []embedding.Key{it.Key})
	if n := b.srv.Stats().Objects; n != 1 {
		t.Errorf("%d objects in the Store, want that of others", n)
	}
}

// Who publishes on a second sighting is told of what the cache gave, and of nothing that came from the Store,
// where it is already.
func TestCacheHitsAreSightings(t *testing.T) {
	var seen []string
	b := newBench(t, embedding.A1, func(c *Config) {
		c.Sighted = func(tenant string, key embedding.Key, buf *arena.Buf, meta embedding.Meta) {
			seen = append(seen, fmt.Sprint(tenant, " ", key, " ", buf.Len() > 0, " ", meta.Rows))
		}
	})
	it := item("image", 3, 8)
	it.Tenant = "one"
	b.plant(it, it, 1)
	b.resolve(it, item("absent", 3, 8))
	if len(seen) != 0 {
		t.Errorf("told of %v, which the cache had not", seen)
	}
	it.Tenant = "two"
	b.resolve(it)
	if want := []string{"two ns@id:image true 3"}; !slices.Equal(seen, want) {
		t.Errorf("told of %v, want %v", seen, want)
	}
}

// Case C12: nothing is left to encode. The answer comes at once, and the next, new image is served.
func TestNothingToEncode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, embedding.A1, nil)
		x := item("x", 3, 8)
		b.plant(x, x, 1)
		start := time.Now()
		for range 3 {
			b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
			b.cache.Remove(x.Key)
		}
		b.miss(b.resolve(item("new", 3, 8))[0], Absent)
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v of waiting", took)
		}
	})
}

// Case T07: the Store removes an object, and gives its place to others, while a reader still holds it.
func TestHeldObjectsStayWhatTheyAre(t *testing.T) {
	for name, b := range map[string]*bench{
		"copy": newBench(t, embedding.A1, nil),
		"loan": func() *bench { b, _ := lending(t, nil); return b }(),
	} {
		t.Run(name, func(t *testing.T) {
			x := item("x", 500, 8)
			put := func(it Item, v float32) {
				buf := b.object(it, v)
				defer buf.Release()
				if err := b.guard.Put(t.Context(), it.Key, buf, store.PutOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			put(x, 1)
			held := b.r.Resolve(t.Context(), []Item{x})[0]
			if held.Buf == nil {
				t.Fatal(held.Err)
			}
			defer held.Buf.Release()
			before := bytes.Clone(held.Buf.Bytes())
			b.cache.Remove(x.Key)
			if err := b.guard.Remove(t.Context(), []embedding.Key{x.Key}); err != nil {
				t.Fatal(err)
			}
			for i := range 300 { // more than the Store holds
				put(item(fmt.Sprint("other ", i), 500, 8), 7)
			}
			if !bytes.Equal(held.Buf.Bytes(), before) {
				t.Error("an object changed while it was held")
			}
			b.miss(b.r.Resolve(t.Context(), []Item{x})[0], Absent)
		})
	}
}

// Case T12: an answer that makes no sense ends the one call that it belongs to. All others, at the same
// time and later, are served.
func TestMalformedAnswersHurtOneCall(t *testing.T) {
	b := newBench(t, embedding.A1, func(c *Config) { c.Cache = nil })
	good, bad := item("good", 3, 8), item("bad", 3, 8)
	b.plant(good, good, 1)
	b.plant(bad, bad, 2)
	b.store.Set(testkit.Get, testkit.Fault{Answer: func(gs []store.Got) []store.Got {
		for _, g := range gs {
			if g.Buf == nil {
				continue
			}
			if m, _, err := b.proto.Open(g.Buf.Bytes(), bad.Key, bad.Contract); err == nil && m.Rows > 0 {
				return append(gs, store.Got{}) // wrong count
			}
		}
		return gs
	}})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				it := good
				if i == 0 {
					it = bad
				}
				r := b.r.Resolve(context.Background(), []Item{it})[0]
				if (r.Buf != nil) != (i != 0) {
					t.Errorf("%s: %+v", it.Key, r)
				}
				if r.Buf != nil {
					r.Buf.Release()
				}
			}
		})
	}
	wg.Wait()
	b.store.Set(testkit.Get, testkit.Fault{})
	b.hit(b.resolve(good)[0], good, control.SourceStore, 1)
	b.miss(b.resolve(bad)[0], Absent) // distrusted
	if b.guard.Err() != nil {
		t.Errorf("the client closed: %v", b.guard.Err())
	}
}

// Case K08: weights, or the processor's rules, are replaced under one served name. What the old ones made is
// unreachable, and is refused where somebody stores it under the new key all the same.
func TestReplacedWeights(t *testing.T) {
	b := newBench(t, embedding.A1, nil)
	under := func(fingerprint string) Item {
		it := item("", 3, 8)
		it.Key = embedding.Namespace{Model: "m", Revision: "r", Encoder: fingerprint, DType: embedding.Float32, Protocol: embedding.A1}.
			Key("0123456789abcdef")
		return it
	}
	before, after := under("weights-a"), under("weights-b")
	b.plant(before, before, 1)
	b.hit(b.resolve(before)[0], before, control.SourceStore, 1)
	b.miss(b.resolve(after)[0], Absent)

	buf := b.object(before, 1) // sealed for the old key
	defer buf.Release()
	if err := b.store.Put(t.Context(), after.Key, buf, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	b.miss(b.resolve(after)[0], Foreign)
	b.miss(b.resolve(after)[0], Absent) // it was removed
}
