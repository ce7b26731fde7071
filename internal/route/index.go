// SPDX-License-Identifier: Apache-2.0

package route

import "sort"

// Index remembers which beginnings of prompts each peer was sent, as a guess at what it still holds: the
// latest used ones, up to a limit per peer. It is used by one goroutine at a time.
type Index struct {
	limit int
	peers map[string]*shelf
}

// NewIndex returns an index of at most limit blocks for each peer, some 50 bytes each, unless SetLimit says
// otherwise.
func NewIndex(limit int) *Index { return &Index{limit: limit, peers: map[string]*shelf{}} }

// SetLimit changes the limit of one peer. It takes effect as blocks are added.
func (x *Index) SetLimit(peer string, limit int) { x.shelf(peer).limit = limit }

// Forget drops what is thought of a peer.
func (x *Index) Forget(peer string) { delete(x.peers, peer) }

// Match returns how many blocks of a prompt the peer is thought to hold, from the first on.
func (x *Index) Match(peer string, blocks []uint64) int {
	s := x.peers[peer]
	if s == nil {
		return 0
	}
	// A block never leaves before those behind it, which are never used later than it.
	return sort.Search(len(blocks), func(i int) bool { _, ok := s.at[blocks[i]]; return !ok })
}

// Add notes that the peer was sent a prompt.
func (x *Index) Add(peer string, blocks []uint64) {
	s := x.shelf(peer)
	for i := min(len(blocks), s.limit) - 1; i >= 0; i-- { // the first block last, which makes it the latest
		s.use(blocks[i])
	}
	for len(s.at) > s.limit {
		s.drop()
	}
}

func (x *Index) shelf(peer string) *shelf {
	s := x.peers[peer]
	if s == nil {
		s = &shelf{limit: x.limit, at: map[uint64]int32{}, nodes: []node{{}}}
		x.peers[peer] = s
	}
	return s
}

// shelf is a set of blocks in the order of their use: a ring of nodes, linked by place, whose first is no
// block and stands between the latest and the oldest.
type shelf struct {
	limit int
	at    map[uint64]int32 // place in nodes
	nodes []node
	free  []int32
}

type node struct {
	block       uint64
	newer, prev int32 // prev is the next older one
}

// use makes a block the latest.
func (s *shelf) use(block uint64) {
	i, ok := s.at[block]
	switch n := len(s.free); {
	case ok:
		s.unlink(i)
	case n > 0:
		i, s.free = s.free[n-1], s.free[:n-1]
	default:
		i = int32(len(s.nodes))
		s.nodes = append(s.nodes, node{})
	}
	latest := s.nodes[0].prev
	s.nodes[i] = node{block: block, newer: 0, prev: latest}
	s.nodes[latest].newer = i
	s.nodes[0].prev = i
	s.at[block] = i
}

// drop forgets the oldest block.
func (s *shelf) drop() {
	i := s.nodes[0].newer
	s.unlink(i)
	delete(s.at, s.nodes[i].block)
	s.free = append(s.free, i)
}

func (s *shelf) unlink(i int32) {
	n := s.nodes[i]
	s.nodes[n.prev].newer = n.newer
	s.nodes[n.newer].prev = n.prev
}
