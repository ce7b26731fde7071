// SPDX-License-Identifier: Apache-2.0

// Package cache keeps embeddings of one process at hand: a bounded, least-recently-used map from key
// to Buf.
//
// The cache holds one reference of each Buf; Get hands out another, which pins the memory: an entry
// may leave the cache while others use its Buf, and the memory goes back to the arena with the last
// reference. The bound is on the bytes of the entries and never exceeded; memory of entries that left
// counts against whoever still holds it.
//
// All methods may be called from any goroutine, take constant time but for evictions, and never wait.
// One mutex guards the map; references are dropped outside of it. The cache does no I/O, never looks
// into a Buf, and does not know how to make an embedding.
package cache

import (
	"container/list"
	"sync"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// Stats is a snapshot of a cache. Counters grow from 0 at New.
type Stats struct {
	Entries   int
	Bytes     int64 // sizes of the entries' Bufs
	MaxBytes  int64 // the bound on Bytes
	Hits      uint64
	Misses    uint64
	Evictions uint64 // entries dropped for room, by Put or Evict
	Refused   uint64 // Puts of objects larger than MaxBytes
}

// Cache is a bounded holder of Bufs. Make one with New.
type Cache struct {
	mu      sync.Mutex // guards the fields below; no other lock is taken under it
	entries map[embedding.Key]*list.Element
	recent  list.List // of *entry, the most recently used in front
	st      Stats     // Entries is computed on demand
	closed  bool
}

type entry struct {
	key  embedding.Key
	buf  *arena.Buf
	meta embedding.Meta
}

// New returns an empty cache that holds at most maxBytes; with 0 or less it holds nothing.
func New(maxBytes int64) *Cache {
	return &Cache{
		entries: make(map[embedding.Key]*list.Element),
		st:      Stats{MaxBytes: max(0, maxBytes)},
	}
}

// Get returns the object of key. On a hit the caller owns one reference of the Buf and must Release
// it; the Meta is shared and only read.
func (c *Cache) Get(key embedding.Key) (*arena.Buf, embedding.Meta, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.entries[key]
	if !ok {
		c.st.Misses++
		return nil, embedding.Meta{}, false
	}
	c.st.Hits++
	c.recent.MoveToFront(el)
	e := el.Value.(*entry)
	return e.buf.Retain(), e.meta, true
}

// Put keeps the committed buf under key with a reference of its own; the caller keeps its own. Entries
// unused for longest leave until buf fits. An object larger than the bound is not kept and evicts
// nothing. If key is there already, Put only marks it as used: objects of one key are interchangeable.
func (c *Cache) Put(key embedding.Key, buf *arena.Buf, meta embedding.Meta) {
	release(c.put(key, buf, meta))
}

// put does Put and returns the entries that left.
func (c *Cache) put(key embedding.Key, buf *arena.Buf, meta embedding.Meta) []*entry {
	n := int64(buf.Len())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if el, ok := c.entries[key]; ok {
		c.recent.MoveToFront(el)
		return nil
	}
	if n > c.st.MaxBytes {
		c.st.Refused++
		return nil
	}
	var out []*entry
	for c.st.Bytes+n > c.st.MaxBytes {
		c.st.Evictions++
		out = append(out, c.dropLocked(c.recent.Back()))
	}
	c.entries[key] = c.recent.PushFront(&entry{key: key, buf: buf.Retain(), meta: meta})
	c.st.Bytes += n
	return out
}

// Remove drops key, if it is there, for instance because its object proved corrupt.
func (c *Cache) Remove(key embedding.Key) {
	c.mu.Lock()
	var out []*entry
	if el, ok := c.entries[key]; ok {
		out = append(out, c.dropLocked(el))
	}
	c.mu.Unlock()
	release(out)
}

// Evict helps an arena that is full: it drops entries unused for longest until n bytes have gone back
// to it, and returns how many have. Entries whose Buf others hold stay, since dropping them would free
// nothing; so Evict ends with less than n when the rest is in use.
func (c *Cache) Evict(n int64) (freed int64) {
	c.mu.Lock()
	var out []*entry
	for el := c.recent.Back(); el != nil && freed < n; {
		next := el.Prev()
		// With c.mu held nobody can take a reference through the cache, so "not shared" stays true.
		if e := el.Value.(*entry); !e.buf.Shared() {
			freed += int64(e.buf.Len())
			c.st.Evictions++
			out = append(out, c.dropLocked(el))
		}
		el = next
	}
	c.mu.Unlock()
	release(out)
	return freed
}

// Stats returns the state at this moment.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.st
	st.Entries = len(c.entries)
	return st
}

// Close drops all entries. Afterwards Get misses and Put keeps nothing. A second Close does nothing.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	var out []*entry
	for el := c.recent.Back(); el != nil; el = c.recent.Back() {
		out = append(out, c.dropLocked(el))
	}
	c.mu.Unlock()
	release(out)
}

// dropLocked takes an entry out of the cache. Its reference is the caller's to release.
func (c *Cache) dropLocked(el *list.Element) *entry {
	e := c.recent.Remove(el).(*entry)
	delete(c.entries, e.key)
	c.st.Bytes -= int64(e.buf.Len())
	return e
}

func release(out []*entry) {
	for _, e := range out {
		e.buf.Release()
	}
}
