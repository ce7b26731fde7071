// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

func sums(keys ...embedding.Key) (out []uint64) {
	for _, k := range keys {
		out = append(out, k.Sum())
	}
	return out
}

func TestChanges(t *testing.T) {
	r := newRig(t, 4*kib)
	f := func(name string, since uint64, whole bool, in, out []uint64) {
		t.Helper()
		c := r.Changes(since)
		if c.Version != r.Version() || c.Whole != whole || !slices.Equal(c.In, in) || !slices.Equal(c.Out, out) {
			t.Errorf("%s: %+v, want whole %v, in %v, out %v at version %d", name, c, whole, in, out, r.Version())
		}
	}
	f("nothing ever came", 0, true, nil, nil)
	r.put("a", kib)
	r.put("b", kib)
	seen := r.Version()
	f("all, latest first", 0, true, sums("b", "a"), nil)
	f("no change", seen, false, nil, nil)
	r.Remove("never")
	if b, _, ok := r.Get("a"); ok {
		b.Release()
	}
	if r.Version() != seen {
		t.Error("a use counts as a change")
	}
	f("all, by use", 0, true, sums("a", "b"), nil)
	r.put("c", 3*kib) // b makes way
	r.put("d", kib/2)
	f("one left for two", seen, false, sums("d", "c"), sums("a", "b"))
	r.Remove("c")
	f("came and left", seen, false, sums("d"), sums("c", "a", "b"))
	r.put("a", kib)
	f("left and came", seen, false, sums("a", "d"), sums("c", "b"))
	f("another cache's version", r.Version()+1, true, sums("a", "d"), nil)
	r.Close()
	f("closed", 0, true, nil, nil)
}

// TestChangesTooMany: who was away for too long gets everything, and of too much the latest.
func TestChangesTooMany(t *testing.T) {
	r := newRig(t, 1<<30)
	b := r.object(1)
	defer b.Release()
	r.Put("w", b, embedding.Meta{})
	r.Put("x", b, embedding.Meta{})
	seen := r.Version()
	for i := range MaxNews {
		r.Put(embedding.Key(fmt.Sprint(i)), b, embedding.Meta{})
	}
	if c := r.Changes(seen); c.Whole || len(c.In) != MaxNews {
		t.Errorf("%d changes ago: whole %v, %d came", MaxNews, c.Whole, len(c.In))
	}
	if c := r.Changes(seen - 1); !c.Whole || len(c.In) != MaxNews+2 {
		t.Errorf("longer ago: whole %v, %d came", c.Whole, len(c.In))
	}
	r.Put("y", b, embedding.Meta{})
	if c := r.Changes(seen); !c.Whole || len(c.In) != MaxNews+3 {
		t.Errorf("%d changes ago: whole %v, %d came", MaxNews+1, c.Whole, len(c.In))
	}
	for i := range MaxKeys {
		r.Put(embedding.Key(fmt.Sprint(i)), b, embedding.Meta{})
	}
	c := r.Changes(0)
	if latest := embedding.Key(fmt.Sprint(MaxKeys - 1)).Sum(); len(c.In) != MaxKeys || c.In[0] != latest {
		t.Errorf("of %d keys %d are told of", MaxKeys+3, len(c.In))
	}
}

// TestChangesFollowed: whoever takes changes in, at whatever times, knows what the cache holds.
func TestChangesFollowed(t *testing.T) {
	r := newRig(t, 16*kib)
	rnd := rand.New(rand.NewPCG(1, 2))
	known, version, pauses := map[uint64]bool{}, uint64(0), uint64(0)
	for step := range 20_000 {
		key := embedding.Key(fmt.Sprint(rnd.IntN(40)))
		if rnd.IntN(3) == 0 {
			r.Remove(key)
		} else {
			r.put(key, 1+rnd.IntN(2*kib))
		}
		if rnd.IntN(50) != 0 || step > 10_000 && step < 18_000 { // the pause is for more than is remembered
			continue
		}
		c := r.Changes(version)
		if c.Whole != (version == 0 || c.Version-version > MaxNews) {
			t.Errorf("step %d: %d changes ago, whole %v", step, c.Version-version, c.Whole)
		}
		pauses = max(pauses, c.Version-version)
		if c.Whole {
			clear(known)
		}
		for _, s := range c.In {
			known[s] = true
		}
		for _, s := range c.Out {
			delete(known, s)
		}
		version = c.Version
		if n := r.Stats().Entries; len(known) != n {
			t.Fatalf("step %d: %d keys are known, %d are there", step, len(known), n)
		}
		for k := range 40 {
			if key := embedding.Key(fmt.Sprint(k)); known[key.Sum()] != r.Has(key) {
				t.Fatalf("step %d: key %s is known to be there: %v", step, key, known[key.Sum()])
			}
		}
	}
	if pauses <= MaxNews {
		t.Errorf("at most %d changes between two looks: never too many", pauses)
	}
}

// BenchmarkChanges: what a probe costs a cache of 50,000 entries: nothing new, one change, and everything.
func BenchmarkChanges(b *testing.B) {
	a, err := arena.New(arena.Config{Name: "cache-bench", Bytes: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	c := New(1 << 40)
	defer c.Close()
	buf, err := a.Reserve(1)
	if err != nil {
		b.Fatal(err)
	}
	buf.Commit()
	defer buf.Release()
	for i := range 50_000 {
		c.Put(embedding.Key(fmt.Sprintf("embedding@model:m@revision:default@encoder:e@dtype:torch.bfloat16@protocol:a1@id:%064d", i)), buf, embedding.Meta{})
	}
	b.Run("version", func(b *testing.B) {
		for b.Loop() {
			c.Version()
		}
	})
	for name, since := range map[string]uint64{"one": c.Version() - 1, "all": 0} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c.Changes(since)
			}
		})
	}
}
