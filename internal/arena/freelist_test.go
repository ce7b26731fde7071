// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestFreeTwicePanics(t *testing.T) {
	f := func(name string, misuse func(l *freeList, i int32)) {
		t.Helper()
		var l freeList
		l.reset(1024)
		l.take(64)
		i, _, _ := l.take(128)
		l.take(64)
		defer func() {
			t.Helper()
			if recover() == nil {
				t.Errorf("%s does not panic", name)
			}
		}()
		misuse(&l, i)
	}
	f("put twice", func(l *freeList, i int32) { l.put(i); l.put(i) })
	f("put of a span that was merged", func(l *freeList, i int32) { l.put(i - 1); l.put(i); l.put(i) })
	f("shrink after put", func(l *freeList, i int32) { l.put(i); l.shrink(i, 64) })
	f("put of none", func(l *freeList, _ int32) { l.put(0) })
}

// Classes are in the order of sizes.
func TestClasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(what string) int64 {
			return align * (int64(1)<<rapid.IntRange(0, 40).Draw(t, what) + rapid.Int64Range(0, 100).Draw(t, what))
		}
		at := func(n int64) int {
			row, col := classOf(n)
			if row < 0 || row >= classRows || col < 0 || col >= classCols {
				t.Fatalf("%d bytes are in class %d, %d", n, row, col)
			}
			return row*classCols + col
		}
		a, b := size("a"), size("b")
		if (a-b)*int64(at(a)-at(b)) < 0 {
			t.Fatalf("classes %d and %d of %d and %d bytes", at(a), at(b), a, b)
		}
	})
}

// It takes the spans that first fit takes, while no list is long.
func TestFreeListIsFirstFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 1 << 20
		var l freeList
		var ref firstFit
		l.reset(capacity)
		ref.put(0, capacity)
		type held struct {
			i      int32
			off, n int64
		}
		var hs []held
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			if len(hs) > 0 && rapid.Bool().Draw(t, "put") {
				at := rapid.IntRange(0, len(hs)-1).Draw(t, "which")
				l.put(hs[at].i)
				ref.put(hs[at].off, hs[at].n)
				hs = append(hs[:at], hs[at+1:]...)
				continue
			}
			n := align * rapid.Int64Range(1, 1500).Draw(t, "granules")
			i, off, ok := l.take(n)
			if want, can := ref.take(n); ok != can || off != want {
				t.Fatalf("%d bytes at %d, %v; first fit: %d, %v", n, off, ok, want, can)
			}
			if ok {
				hs = append(hs, held{i, off, n})
			}
			if l.largest() != ref.largest() {
				t.Fatalf("largest %d, want %d", l.largest(), ref.largest())
			}
			later, gone := l, []*Buf(nil)
			later.spans = slices.Clone(l.spans)
			for _, h := range hs {
				if rapid.Bool().Draw(t, "gone") {
					gone = append(gone, &Buf{span: h.i})
					later.put(h.i)
				}
			}
			if got, want := l.largestWithout(gone), later.largest(); got != want {
				t.Fatalf("largest without %d ranges %d, want %d", len(gone), got, want)
			}
		}
	})
}

// However many free spans of a class are too small, one that is not is found.
func TestFindInALongList(t *testing.T) {
	var l freeList
	const n, small, big = 200, 1024 * align, 1025 * align
	l.reset(2*n*small + big)
	var is []int32
	for range 2 * n {
		i, _, _ := l.take(small)
		is = append(is, i)
	}
	last, _, _ := l.take(big)
	for i := 0; i < 2*n-1; i += 2 {
		l.put(is[i])
	}
	l.put(last)
	if i, _, ok := l.take(big); !ok || i == 0 {
		t.Error("a span that fits is not found")
	}
	if _, _, ok := l.take(big); ok {
		t.Error("a span that does not fit was taken")
	}
}

// fitter is a free list under measurement.
type fitter interface {
	take(n int64) (free func(), ok bool)
	largest() int64
}

type segregated struct{ freeList }

func (s *segregated) take(n int64) (func(), bool) {
	i, _, ok := s.freeList.take(n)
	return func() { s.put(i) }, ok
}

type lowest struct{ firstFit }

func (l *lowest) take(n int64) (func(), bool) {
	off, ok := l.firstFit.take(n)
	return func() { l.put(off, n) }, ok
}

// mixedSize is an embedding of a picture: rows from 16 to 16384, mostly few, of 2 to 8 KiB.
func mixedSize(rng *rand.Rand) int64 {
	rows := int64(16) << rng.IntN(1+rng.IntN(11))
	rows += rng.Int64N(rows)
	return roundUp(rows*(2048<<rng.IntN(3)) + 512)
}

// BenchmarkFreeList replaces ranges of mixed sizes in 4 GiB of which 85 % are in use, by the free list and by
// first fit. refused is how many of a thousand wants met a list that had the bytes, in pieces; largest is the
// largest range, of what is free, in percent.
func BenchmarkFreeList(b *testing.B) {
	const capacity, inUse = 4 << 30, 85
	for _, c := range []struct {
		name string
		make func() fitter
	}{
		{"segregated", func() fitter { s := &segregated{}; s.reset(capacity); return s }},
		{"first fit", func() fitter { l := &lowest{}; l.put(0, capacity); return l }},
	} {
		b.Run(c.name, func(b *testing.B) {
			type held struct {
				free func()
				n    int64
			}
			f, rng := c.make(), rand.New(rand.NewPCG(1, 2))
			var hs []held
			used, refused, largest := int64(0), 0, 0.0
			step := func() {
				n := mixedSize(rng)
				for used+n > capacity/100*inUse {
					i := rng.IntN(len(hs))
					hs[i].free()
					used -= hs[i].n
					hs[i] = hs[len(hs)-1]
					hs = hs[:len(hs)-1]
				}
				free, ok := f.take(n)
				if !ok {
					refused++
					return
				}
				hs, used = append(hs, held{free, n}), used+n
			}
			for range 50_000 {
				step()
			}
			refused = 0
			b.ReportAllocs()
			for b.Loop() {
				step()
				largest += float64(f.largest()) / float64(capacity-used)
			}
			b.ReportMetric(1000*float64(refused)/float64(b.N), "refused/1000")
			b.ReportMetric(100*largest/float64(b.N), "largest-%")
		})
	}
}
