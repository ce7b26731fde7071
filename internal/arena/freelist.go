// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"fmt"
	"math"
	"math/bits"
)

// freeList parts a region into spans, in use or free, and keeps the free ones in lists by size class, each in
// order of addresses. It takes the lowest span that is large enough: memory stays in one piece for longer than
// where the size that fits best is taken. Sizes up to 1 KiB have classes of their own, and each power of two
// above has 16. Bitmaps say which lists are not empty, so that finding a span takes a look at the first of some
// tens of lists, however many spans there are. Two free spans never touch: they are merged at once. The zero
// value holds nothing; reset gives it a region.
//
// What is known of spans lies in one slice, whose indexes they refer to each other by, so that a full list is
// one object to the garbage collector. Span 0 is none.
//
// BenchmarkFreeList compares it, in time and in how memory falls to pieces, with a treap in order of addresses,
// which takes the same spans.
type freeList struct {
	spans []span
	spare int32             // unused spans, chained through next
	rows  uint64            // which rows have a list that is not empty
	cols  [classRows]uint32 // which lists of a row are not empty
	heads [classRows][classCols]int32
	lows  [classRows]int64 // the lowest offset of a row's first spans, while one of its lists is not empty
}

// span is a range of the region: in use, free, or unused itself (size 0).
type span struct {
	off, size    int64
	prev, next   int32 // in order of addresses; 0 is none
	ahead, after int32 // in the list of its class, while it is free
	free         bool
}

const (
	classBits = 4
	classCols = 1 << classBits
	// Row 0 is for sizes below 16 granules, and each further one for a power of two.
	classRows = 64 - classBits
	// listSteps bounds how far into a list a look goes, but for spans that are found nowhere else. A list that is
	// longer is in order as far as that.
	listSteps = 16
)

// classOf returns the class of a size in bytes, a multiple of align.
func classOf(size int64) (row, col int) {
	g := uint64(size / align)
	if g < classCols {
		return 0, int(g)
	}
	log := bits.Len64(g) - 1
	return log - classBits + 1, int(g>>(log-classBits)) & (classCols - 1)
}

// reset makes the region [0, n) one free span.
func (f *freeList) reset(n int64) {
	*f = freeList{spans: make([]span, 1, 64)}
	f.enlist(f.add(span{size: n}))
}

// take cuts n bytes off the start of a span that is large enough, and returns which span they are.
func (f *freeList) take(n int64) (i int32, off int64, ok bool) {
	if i = f.find(n); i == 0 {
		return 0, 0, false
	}
	f.delist(i)
	if rest := f.spans[i].size - n; rest > 0 {
		f.enlist(f.cut(i, n))
	}
	return i, f.spans[i].off, true
}

// find returns the lowest free span of at least n bytes, or 0.
func (f *freeList) find(n int64) int32 {
	row, col := classOf(n)
	// The class of n itself has spans that are smaller, too.
	best, rest := f.walk(f.heads[row][col], n, listSteps)
	best = f.lowest(best, row, f.cols[row]>>(col+1)<<(col+1))
	lowest := int64(math.MaxInt64)
	if best != 0 {
		lowest = f.spans[best].off
	}
	from := 0
	for rows := f.rows >> (row + 1) << (row + 1); rows != 0; rows &= rows - 1 {
		if r := bits.TrailingZeros64(rows); f.lows[r] < lowest {
			from, lowest = r, f.lows[r]
		}
	}
	if from != 0 {
		best = f.lowest(best, from, f.cols[from])
	}
	if best == 0 {
		best, _ = f.walk(rest, n, len(f.spans))
	}
	return best
}

// walk returns the first span of at least n bytes among so many from i on, or 0 and where it stopped.
func (f *freeList) walk(i int32, n int64, steps int) (found, rest int32) {
	for ; i != 0 && steps > 0; steps-- {
		if f.spans[i].size >= n {
			return i, 0
		}
		i = f.spans[i].after
	}
	return 0, i
}

// lowest returns the one with the lowest address of best, unless that is 0, and the first spans of some lists.
func (f *freeList) lowest(best int32, row int, cols uint32) int32 {
	for ; cols != 0; cols &= cols - 1 {
		if i := f.heads[row][bits.TrailingZeros32(cols)]; best == 0 || f.spans[i].off < f.spans[best].off {
			best = i
		}
	}
	return best
}

// put gives back a span that take returned. It panics when that is free already.
func (f *freeList) put(i int32) {
	f.mustUse(i)
	if p := f.spans[i].prev; p != 0 && f.spans[p].free {
		f.delist(p)
		i = f.merge(p, i)
	}
	if n := f.spans[i].next; n != 0 && f.spans[n].free {
		f.delist(n)
		i = f.merge(i, n)
	}
	f.enlist(i)
}

// shrink gives back what a span in use has beyond its first n bytes.
func (f *freeList) shrink(i int32, n int64) {
	f.mustUse(i)
	f.put(f.cut(i, n))
}

func (f *freeList) mustUse(i int32) {
	if s := f.spans[i]; s.free || s.size == 0 {
		panic(fmt.Sprintf("BUG: arena: range at %d freed twice", s.off))
	}
}

// cut leaves span i its first n bytes, and returns a span of the others, which is in no list.
func (f *freeList) cut(i int32, n int64) int32 {
	s := f.spans[i]
	j := f.add(span{off: s.off + n, size: s.size - n, prev: i, next: s.next})
	f.spans[i].size, f.spans[i].next = n, j
	if s.next != 0 {
		f.spans[s.next].prev = j
	}
	return j
}

// merge makes one span of two neighbours that are in no list.
func (f *freeList) merge(i, j int32) int32 {
	s := f.spans[j]
	f.spans[i].size += s.size
	f.spans[i].next = s.next
	if s.next != 0 {
		f.spans[s.next].prev = i
	}
	f.spans[j] = span{next: f.spare}
	f.spare = j
	return i
}

// enlist puts a span into the list of its class, before the first that has a higher address.
func (f *freeList) enlist(i int32) {
	s := &f.spans[i]
	row, col := classOf(s.size)
	ahead, after := int32(0), f.heads[row][col]
	for steps := 0; after != 0 && f.spans[after].off < s.off && steps < listSteps; steps++ {
		ahead, after = after, f.spans[after].after
	}
	s.free, s.ahead, s.after = true, ahead, after
	if after != 0 {
		f.spans[after].ahead = i
	}
	if ahead != 0 {
		f.spans[ahead].after = i
		return
	}
	f.heads[row][col] = i
	f.headed(row, col)
}

// headed takes note that a list has another first span, or none.
func (f *freeList) headed(row, col int) {
	if f.cols[row] &^= 1 << col; f.heads[row][col] != 0 {
		f.cols[row] |= 1 << col
	}
	if f.rows &^= 1 << row; f.cols[row] != 0 {
		f.rows |= 1 << row
		f.lows[row] = f.spans[f.lowest(0, row, f.cols[row])].off
	}
}

// delist takes a free span out of its list.
func (f *freeList) delist(i int32) {
	s := &f.spans[i]
	s.free = false
	if s.after != 0 {
		f.spans[s.after].ahead = s.ahead
	}
	if s.ahead != 0 {
		f.spans[s.ahead].after = s.after
		return
	}
	row, col := classOf(s.size)
	f.heads[row][col] = s.after
	f.headed(row, col)
}

// add returns the index of a new span.
func (f *freeList) add(s span) int32 {
	i := f.spare
	if i == 0 {
		f.spans = append(f.spans, s)
		return int32(len(f.spans) - 1)
	}
	f.spare = f.spans[i].next
	f.spans[i] = s
	return i
}
