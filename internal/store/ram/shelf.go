// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"container/list"
	"sync"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// object is one stored embedding. It leaves memory when it is unlinked and nobody reads it.
type object struct {
	key     embedding.Key
	buf     *arena.Buf
	tenant  *tenant
	soft    bool // evicted after all that are not
	expires time.Time
	due     int           // place in shelf.expiry; -1 when it never expires
	place   *list.Element // in shelf.lru or shelf.soft; nil once unlinked
	mine    *list.Element // in tenant.lru
	readers int           // replies that are being sent, and loans
	loans   []*loan
	lent    *list.Element // in shelf.lent or shelf.asked; nil while it is not on loan
	asked   bool          // was recalled
	at      int           // place in shelf.all
	id      uint64        // for pins
	entry   int           // of the index; -1 while it has none
	stored  time.Time
	read    time.Time // last, or stored
}

// tenant is the account of one tenant. The tenant "" is nobody's and has no quota.
type tenant struct {
	name  string
	bytes int64     // of objects and uploads
	lru   list.List // of *object, front is the warmest
}

// shelf holds the objects. Its cost of an object is its bytes: what an embedding costs to compute
// grows with its size, so objects of equal age are worth the same per byte and the coldest goes
// first, whatever its size.
type shelf struct {
	arena     *arena.Arena
	limit     int64
	maxObject int64
	quota     func(tenant string) int64 // 0 is none; nil is none for all
	feed      *feed
	sketch    *sketch       // nil keeps none
	index     *index        // nil keeps none
	work      chan struct{} // has a value when the janitor should look
	listed    func()        // between the steps of a list, in tests; nil is nothing

	mu       sync.Mutex // guards the fields below; acquired before arena and feed locks
	objects  map[embedding.Key]*object
	all      []*object // the same, for listings to walk
	tenants  map[string]*tenant
	lru      list.List // of *object; front is the warmest
	soft     list.List // of *object with a soft pin, likewise
	lent     list.List // of *object on loan that was not recalled; front was lent last
	asked    list.List // of *object on loan that was
	expiry   expiry
	used     int64 // bytes of objects, unlinked ones that are still read included
	inUse    int   // objects with readers
	reading  int64 // their bytes
	lentSum  int64 // bytes of objects on loan
	loans    int
	nextLoan uint64
	recalled time.Time          // when loans were last recalled
	returned chan struct{}      // closed when a loan comes back; nil while nobody asked
	pinnable map[uint64]*object // by id: those that clients may have pinned since the last gatherLocked
	nextPin  uint64
	tables   []*borrower  // that pin
	taken    [places]bool // of the index
	touched  []touch      // room for touchLocked
	held     int64        // bytes of uploads
	uploads  int
	closed   bool
	n        counts
}

// counts are totals since start.
type counts struct {
	puts, duplicates, gets, hits, misses, evictions, expired, removed, rejected, aborted uint64
	lent, recalls                                                                        uint64
}

func newShelf(a *arena.Arena, limit, maxObject int64) *shelf {
	return &shelf{arena: a, limit: limit, maxObject: maxObject, feed: newFeed(), work: make(chan struct{}, 1),
		objects: make(map[embedding.Key]*object), tenants: make(map[string]*tenant), pinnable: make(map[uint64]*object)}
}

// findLocked returns a live object, or nil. One that is past its time is dropped on the way.
func (s *shelf) findLocked(k embedding.Key) *object {
	o, ok := s.objects[k]
	if !ok {
		return nil
	}
	if !o.expires.IsZero() && !time.Now().Before(o.expires) {
		s.n.expired++
		s.unlinkLocked(o)
		return nil
	}
	return o
}

// size tells the bytes of an object. It does not make the object any warmer: a probe must not keep
// alive what nobody reads.
func (s *shelf) size(k embedding.Key) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.findLocked(k)
	if o == nil {
		return 0, false
	}
	return int64(o.buf.Len()), true
}

// read finds an object and keeps it in memory until done. With statusRejected the size does not
// suit; the object's size is returned and there is nothing to give back.
func (s *shelf) read(k embedding.Key, most uint64, exact bool) (*object, int, status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncLocked() // what was used before becomes warm before
	o, n, st := s.wantLocked(k, most, exact)
	if o != nil {
		s.holdLocked(o)
	}
	return o, n, st
}

// wantLocked looks an object up for a reader and makes it the warmest.
func (s *shelf) wantLocked(k embedding.Key, most uint64, exact bool) (*object, int, status) {
	s.n.gets++
	o := s.findLocked(k)
	if o == nil {
		s.n.misses++
		return nil, 0, statusMiss
	}
	n := o.buf.Len()
	if uint64(n) > most || exact && uint64(n) != most {
		s.n.misses++
		return nil, n, statusRejected
	}
	s.n.hits++
	s.warmLocked(o, time.Now())
	s.showLocked(o) // others may have left since it found no entry
	return o, n, statusOK
}

// orderOf returns the list that an object is evicted from.
func (s *shelf) orderOf(o *object) *list.List {
	if o.soft {
		return &s.soft
	}
	return &s.lru
}

// holdLocked counts a reader.
func (s *shelf) holdLocked(o *object) {
	if o.readers++; o.readers == 1 {
		s.inUse++
		s.reading += int64(o.buf.Len())
	}
}

// done ends one read.
func (s *shelf) done(o *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doneLocked(o)
}

func (s *shelf) doneLocked(o *object) {
	if o.readers--; o.readers == 0 {
		s.inUse--
		s.reading -= int64(o.buf.Len())
		if o.place == nil {
			s.freeLocked(o)
		}
	}
}

// unlinkLocked makes an object unfindable. Its memory goes back at once, or with its last reader.
func (s *shelf) unlinkLocked(o *object) {
	s.hideLocked(o)
	s.forgetLocked(o)
}

// forgetLocked does unlinkLocked for an object that is hidden.
func (s *shelf) forgetLocked(o *object) {
	s.index.drop(o)
	delete(s.pinnable, o.id)
	delete(s.objects, o.key)
	s.dropFromAllLocked(o)
	s.sketch.remove(o.key)
	s.orderOf(o).Remove(o.place)
	o.place = nil
	o.tenant.lru.Remove(o.mine)
	s.chargeLocked(o.tenant, -int64(o.buf.Len()))
	s.expiry.drop(o)
	s.feed.publish(store.Removed, o.key)
	if o.readers == 0 {
		s.freeLocked(o)
	}
}

// freeLocked gives back the memory of an object that is unlinked and not read.
func (s *shelf) freeLocked(o *object) {
	s.used -= int64(o.buf.Len())
	o.buf.Release()
}

// remove unlinks an object; those who read it finish.
func (s *shelf) remove(k embedding.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[k]; ok {
		s.n.removed++
		s.unlinkLocked(o)
	}
}

// refuse ends all further uploads. Memory on loan is not used again from here on, whoever goes away.
func (s *shelf) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wakeLocked()
}

// close drops every object and refuses all further uploads.
func (s *shelf) close() {
	s.refuse()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		s.unlinkLocked(o)
	}
}
