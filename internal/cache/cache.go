// SPDX-License-Identifier: Apache-2.0

// Package cache keeps embeddings of one process at hand: a bounded, least-recently-used map from key
// to Buf.
//
// The cache holds one reference of each Buf; Get hands out another, which pins the memory: an entry
// may leave the cache while others use its Buf, and the memory goes back to the arena with the last
// reference. The bound is on the bytes of the entries and never exceeded; memory of entries that left
// counts against whoever still holds it.
//
// A Buf may be foreign: a loan of a Store on this host. Those entries have a bound of their own within
// that of the cache, and when the lender recalls one, the cache at once puts a copy in its own arena in
// its place, or drops it when there is no room.
//
// The cache counts what comes and leaves, and remembers the latest of it, so that others may follow what it
// holds without asking for all of it each time (Changes).
//
// All methods may be called from any goroutine, take constant time but for evictions and Changes, and never wait.
// One mutex guards the map; references are dropped outside of it. The cache does no I/O, never looks
// into a Buf, and does not know how to make an embedding.
package cache

import (
	"cmp"
	"container/list"
	"sync"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// Stats is a snapshot of a cache. Counters grow from 0 at New.
type Stats struct {
	Entries    int
	Bytes      int64 // sizes of the entries' Bufs
	MaxBytes   int64 // the bound on Bytes
	Foreign    int64 // of Bytes, those on loan
	MaxForeign int64 // the bound on Foreign
	Hits       uint64
	Misses     uint64
	Evictions  uint64 // entries dropped for room, by Put or Evict
	Refused    uint64 // Puts of objects larger than their bound, or recalled already
	Copied     uint64 // loans that were recalled and swapped for copies
	Recalled   uint64 // loans that were recalled and dropped
}

// Config sets up a cache.
type Config struct {
	MaxBytes int64 // the most bytes that entries take; with 0 or less the cache holds nothing
	// MaxForeign is the most bytes of them on loan; at most half of what the lender has is fair, and
	// the lender sees to that as well. 0 is MaxBytes, less than 0 none.
	MaxForeign int64
	Arena      *arena.Arena // takes the copies of recalled loans; nil drops them
}

// Cache is a bounded holder of Bufs. Make one with New.
type Cache struct {
	arena *arena.Arena // for copies; may be nil

	mu      sync.Mutex // guards the fields below; no other lock is taken under it
	entries map[embedding.Key]*list.Element
	recent  list.List // of *entry, the most recently used in front
	foreign list.List // of those *entry on loan, likewise
	news    news      // of what came and left
	st      Stats     // Entries is computed on demand
	closed  bool
}

type entry struct {
	key  embedding.Key
	sum  uint64 // of key
	buf  *arena.Buf
	meta embedding.Meta
	loan *list.Element // in foreign; nil for own memory
	deaf func()        // ends the interest in a recall
}

// New returns an empty cache that holds at most maxBytes; with 0 or less it holds nothing.
func New(maxBytes int64) *Cache { return NewWith(Config{MaxBytes: maxBytes}) }

// NewWith returns an empty cache.
func NewWith(cfg Config) *Cache {
	bound := max(0, cfg.MaxBytes)
	return &Cache{
		arena:   cfg.Arena,
		entries: make(map[embedding.Key]*list.Element),
		st:      Stats{MaxBytes: bound, MaxForeign: max(0, min(bound, cmp.Or(cfg.MaxForeign, bound)))},
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
	c.touchLocked(el)
	e := el.Value.(*entry)
	return e.buf.Retain(), e.meta, true
}

// Has says whether key is there, without using it. It may have left a moment later.
func (c *Cache) Has(key embedding.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.entries[key]
	return ok
}

// touchLocked marks an entry as used.
func (c *Cache) touchLocked(el *list.Element) {
	c.recent.MoveToFront(el)
	if e := el.Value.(*entry); e.loan != nil {
		c.foreign.MoveToFront(e.loan)
	}
}

// Put keeps the committed buf under key with a reference of its own; the caller keeps its own. Entries
// unused for longest leave until buf fits. An object larger than the bound is not kept and evicts
// nothing. If key is there already, Put only marks it as used: objects of one key are interchangeable.
func (c *Cache) Put(key embedding.Key, buf *arena.Buf, meta embedding.Meta) {
	e, out := c.put(key, buf, meta)
	release(out)
	if e != nil && buf.Foreign() {
		c.listen(e)
	}
}

// put does Put and returns the new entry, or nil, and those that left.
func (c *Cache) put(key embedding.Key, buf *arena.Buf, meta embedding.Meta) (*entry, []*entry) {
	n, sum := int64(buf.Len()), key.Sum()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil
	}
	if el, ok := c.entries[key]; ok {
		c.touchLocked(el)
		return nil, nil
	}
	if n > c.st.MaxBytes || buf.Foreign() && (n > c.st.MaxForeign || buf.Recalled()) {
		c.st.Refused++
		return nil, nil
	}
	var out []*entry
	for buf.Foreign() && c.st.Foreign+n > c.st.MaxForeign {
		c.st.Evictions++
		out = append(out, c.dropLocked(c.entries[c.foreign.Back().Value.(*entry).key]))
	}
	for c.st.Bytes+n > c.st.MaxBytes {
		c.st.Evictions++
		out = append(out, c.dropLocked(c.recent.Back()))
	}
	e := &entry{key: key, sum: sum, buf: buf.Retain(), meta: meta}
	c.entries[key] = c.recent.PushFront(e)
	c.news.add(sum, true)
	c.st.Bytes += n
	if buf.Foreign() {
		e.loan = c.foreign.PushFront(e)
		c.st.Foreign += n
	}
	return e, out
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
// nothing, as do loans; so Evict ends with less than n when the rest is in use.
func (c *Cache) Evict(n int64) (freed int64) {
	c.mu.Lock()
	var out []*entry
	for el := c.recent.Back(); el != nil && freed < n; {
		next := el.Prev()
		// With c.mu held nobody can take a reference through the cache, so "not shared" stays true.
		if e := el.Value.(*entry); e.loan == nil && !e.buf.Shared() {
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
	c.news.add(e.sum, false)
	c.st.Bytes -= int64(e.buf.Len())
	if e.loan != nil {
		c.st.Foreign -= int64(e.buf.Len())
		c.foreign.Remove(e.loan)
		e.loan = nil
	}
	return e
}

func release(out []*entry) {
	for _, e := range out {
		if e.deaf != nil {
			e.deaf()
		}
		e.buf.Release()
	}
}
