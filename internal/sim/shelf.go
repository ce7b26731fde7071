// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

// Eviction names what goes first when a cache is full.
type Eviction string

// The kinds of eviction.
const (
	LRU  Eviction = "lru"  // what was not used for longest
	FIFO Eviction = "fifo" // what came first
	LFU  Eviction = "lfu"  // what was used least often; between equals, what was not used for longest
)

// Evictions lists the kinds of eviction.
func Evictions() []Eviction { return []Eviction{LRU, FIFO, LFU} }

// Unlimited is the size of a cache that never evicts.
const Unlimited = -1

// shelf is a cache of sizes: what it holds, in the order in which it would evict.
type shelf struct {
	limit    int64 // bytes; Unlimited, or 0 for a shelf that holds nothing
	eviction Eviction
	ttl      time.Duration // counted from put; 0 is for ever

	at      map[uint32]int32 // image -> entry
	entries []entry
	free    []int32
	lists   map[int32]*list // by uses, for LFU; else one, under 0
	least   int32           // uses of the first list that may have entries

	bytes, peak, evicted int64 // peak of bytes; objects evicted
}

// entry is one image on a shelf, in the list of its uses.
type entry struct {
	image      uint32
	bytes      int32
	uses       int32
	prev, next int32
	ready      time.Duration // when it is there: an encode may still be running
	expires    time.Duration // 0 never
}

// list is a doubly linked list of entries; the first goes first.
type list struct{ first, last int32 }

const none = -1

func newShelf(limit int64, e Eviction, ttl time.Duration) *shelf {
	return &shelf{limit: limit, eviction: e, ttl: ttl, at: map[uint32]int32{}, lists: map[int32]*list{}}
}

// get returns when image is there, and whether it is on the shelf at all. With touch it counts as used.
func (s *shelf) get(image uint32, now time.Duration, touch bool) (ready time.Duration, ok bool) {
	if s.limit == 0 {
		return 0, false
	}
	i, ok := s.at[image]
	if !ok {
		return 0, false
	}
	e := &s.entries[i]
	if e.expires > 0 && now >= e.expires {
		s.remove(i)
		return 0, false
	}
	if touch {
		s.touch(i)
	}
	return e.ready, true
}

// put shelves an image that is there from ready on. One that is on the shelf stays as it is.
func (s *shelf) put(image uint32, bytes int32, ready time.Duration) {
	if s.limit == 0 || s.limit != Unlimited && int64(bytes) > s.limit {
		return
	}
	if _, ok := s.at[image]; ok {
		return
	}
	for s.limit != Unlimited && s.bytes+int64(bytes) > s.limit {
		s.remove(s.victim())
		s.evicted++
	}
	e := entry{image: image, bytes: bytes, ready: ready}
	if s.ttl > 0 {
		e.expires = ready + s.ttl
	}
	i := int32(len(s.entries))
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
		s.entries[i] = e
	} else {
		s.entries = append(s.entries, e)
	}
	s.at[image] = i
	s.bytes += int64(bytes)
	s.peak = max(s.peak, s.bytes)
	s.least = 0
	s.link(i)
}

func (s *shelf) touch(i int32) {
	switch s.eviction {
	case LRU:
		s.unlink(i)
		s.link(i)
	case LFU:
		s.unlink(i)
		s.entries[i].uses++
		s.link(i)
	}
}

// victim returns the entry to evict. The shelf is not empty.
func (s *shelf) victim() int32 {
	for {
		if l := s.lists[s.least]; l != nil && l.first != none {
			return l.first
		}
		s.least++
	}
}

func (s *shelf) remove(i int32) {
	s.unlink(i)
	s.bytes -= int64(s.entries[i].bytes)
	delete(s.at, s.entries[i].image)
	s.free = append(s.free, i)
}

// link appends an entry to the list of its uses.
func (s *shelf) link(i int32) {
	e := &s.entries[i]
	l := s.lists[e.uses]
	if l == nil {
		l = &list{none, none}
		s.lists[e.uses] = l
	}
	e.prev, e.next = l.last, none
	if l.last == none {
		l.first = i
	} else {
		s.entries[l.last].next = i
	}
	l.last = i
}

func (s *shelf) unlink(i int32) {
	e := &s.entries[i]
	l := s.lists[e.uses]
	if e.prev == none {
		l.first = e.next
	} else {
		s.entries[e.prev].next = e.next
	}
	if e.next == none {
		l.last = e.prev
	} else {
		s.entries[e.next].prev = e.prev
	}
	if l.first == none && e.uses > 0 {
		delete(s.lists, e.uses)
	}
}
