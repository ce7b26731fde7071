// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"fmt"
	"math/rand/v2"
)

// firstFit is what freeList is measured against: a treap of the free ranges, ordered by offset, in which every
// node knows the largest range below it. It takes the lowest range that is large enough.
//
// Nodes live in one slice and refer to each other by index, so that a full list is one object to the
// garbage collector. Index 0 is the empty subtree. No method but put grows the slice.
type firstFit struct {
	nodes []fitNode
	root  int32
	spare int32 // unused nodes, chained through left
}

type fitNode struct {
	off, size   int64
	max         int64 // largest size in this subtree
	prio        uint32
	left, right int32
}

// largest returns the size of the largest free range.
func (f *firstFit) largest() int64 {
	if f.root == 0 {
		return 0
	}
	return f.nodes[f.root].max
}

// take cuts n bytes from the start of the lowest range that is large enough.
func (f *firstFit) take(n int64) (off int64, ok bool) {
	if f.largest() < n {
		return 0, false
	}
	f.root, off = f.takeFrom(f.root, n)
	return off, true
}

// takeFrom does take in subtree i, which has room, and returns the subtree's new root.
func (f *firstFit) takeFrom(i int32, n int64) (root int32, off int64) {
	nd := &f.nodes[i]
	switch {
	case f.nodes[nd.left].max >= n:
		nd.left, off = f.takeFrom(nd.left, n)
	case nd.size > n:
		off = nd.off
		nd.off += n
		nd.size -= n
	case nd.size == n:
		off = nd.off
		root = f.join(nd.left, nd.right)
		f.drop(i)
		return root, off
	default:
		nd.right, off = f.takeFrom(nd.right, n)
	}
	f.update(i)
	return i, off
}

// put adds [off, off+n), merged with the ranges that touch it. It panics when a part of it is free
// already.
func (f *firstFit) put(off, n int64) {
	below, above := f.split(f.root, off)
	if i := f.last(below); i != 0 {
		end := f.nodes[i].off + f.nodes[i].size
		if end > off {
			panic(fmt.Sprintf("BUG: arena: range at %d freed twice", off))
		}
		if end == off {
			below, i = f.split(below, f.nodes[i].off)
			off, n = f.nodes[i].off, n+f.nodes[i].size
			f.drop(i)
		}
	}
	if i := f.first(above); i != 0 {
		start := f.nodes[i].off
		if off+n > start {
			panic(fmt.Sprintf("BUG: arena: range at %d freed twice", start))
		}
		if off+n == start {
			i, above = f.split(above, start+1)
			n += f.nodes[i].size
			f.drop(i)
		}
	}
	f.root = f.join(f.join(below, f.add(off, n)), above)
}

// split parts subtree i into the ranges that start below off and the others.
func (f *firstFit) split(i int32, off int64) (below, above int32) {
	if i == 0 {
		return 0, 0
	}
	nd := &f.nodes[i]
	if nd.off < off {
		nd.right, above = f.split(nd.right, off)
		f.update(i)
		return i, above
	}
	below, nd.left = f.split(nd.left, off)
	f.update(i)
	return below, i
}

// join makes one tree of two, all of a below all of b.
func (f *firstFit) join(a, b int32) int32 {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	case f.nodes[a].prio > f.nodes[b].prio:
		f.nodes[a].right = f.join(f.nodes[a].right, b)
		f.update(a)
		return a
	}
	f.nodes[b].left = f.join(a, f.nodes[b].left)
	f.update(b)
	return b
}

func (f *firstFit) first(i int32) int32 {
	for i != 0 && f.nodes[i].left != 0 {
		i = f.nodes[i].left
	}
	return i
}

func (f *firstFit) last(i int32) int32 {
	for i != 0 && f.nodes[i].right != 0 {
		i = f.nodes[i].right
	}
	return i
}

func (f *firstFit) update(i int32) {
	nd := &f.nodes[i]
	nd.max = max(nd.size, f.nodes[nd.left].max, f.nodes[nd.right].max)
}

// add returns a tree of one node.
func (f *firstFit) add(off, n int64) int32 {
	if len(f.nodes) == 0 {
		f.nodes = make([]fitNode, 1, 64) // the empty subtree
	}
	i := f.spare
	if i == 0 {
		i = int32(len(f.nodes))
		f.nodes = append(f.nodes, fitNode{})
	} else {
		f.spare = f.nodes[i].left
	}
	f.nodes[i] = fitNode{off: off, size: n, max: n, prio: rand.Uint32()}
	return i
}

func (f *firstFit) drop(i int32) {
	f.nodes[i] = fitNode{left: f.spare}
	f.spare = i
}
