// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"container/list"
	"errors"
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
	place   *list.Element // nil once unlinked
	readers int
}

// upload is room that one connection reserved and has not committed. Uploads do not claim their key:
// the first commit wins, so a writer that stalls or dies holds up nobody.
type upload struct {
	key      embedding.Key
	buf      *arena.Buf
	deadline time.Time
}

// shelf holds the objects. Its cost of an object is its bytes: what an embedding costs to compute
// grows with its size, so objects of equal age are worth the same per byte and the coldest goes
// first, whatever its size.
type shelf struct {
	arena     *arena.Arena
	limit     int64
	maxObject int64
	feed      *feed

	mu      sync.Mutex // guards the fields below; acquired before arena and feed locks
	objects map[embedding.Key]*object
	lru     list.List // of *object; front is the warmest
	used    int64     // bytes of objects, unlinked ones that are still read included
	reading int64     // bytes of objects with readers
	held    int64     // bytes of uploads
	uploads int
	closed  bool
	n       counts
}

// counts are totals since start.
type counts struct {
	puts, duplicates, gets, hits, misses, evictions, removed, rejected, aborted uint64
}

func newShelf(a *arena.Arena, limit, maxObject int64) *shelf {
	return &shelf{arena: a, limit: limit, maxObject: maxObject, feed: newFeed(),
		objects: make(map[embedding.Key]*object)}
}

// size tells the bytes of an object. It does not make the object any warmer: a probe must not keep
// alive what nobody reads.
func (s *shelf) size(k embedding.Key) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[k]
	if !ok {
		return 0, false
	}
	return int64(o.buf.Len()), true
}

// read finds an object and keeps it in memory until done. With statusRejected the size does not
// suit; the object's size is returned and there is nothing to give back.
func (s *shelf) read(k embedding.Key, most uint64, exact bool) (*object, int, status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n.gets++
	o, ok := s.objects[k]
	if !ok {
		s.n.misses++
		return nil, 0, statusMiss
	}
	n := o.buf.Len()
	if uint64(n) > most || exact && uint64(n) != most {
		s.n.misses++
		return nil, n, statusRejected
	}
	s.n.hits++
	s.lru.MoveToFront(o.place)
	if o.readers++; o.readers == 1 {
		s.reading += int64(n)
	}
	return o, n, statusOK
}

// done ends one read.
func (s *shelf) done(o *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.readers--; o.readers == 0 {
		s.reading -= int64(o.buf.Len())
		if o.place == nil {
			s.freeLocked(o)
		}
	}
}

// unlinkLocked makes an object unfindable. Its memory goes back at once, or with its last reader.
func (s *shelf) unlinkLocked(o *object) {
	delete(s.objects, o.key)
	s.lru.Remove(o.place)
	o.place = nil
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

// commit stores a filled upload and ends it in every case. stored is false, without an error, when
// another writer was first. An upload past its deadline is refused.
func (s *shelf) commit(u *upload) (stored bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch _, there := s.objects[u.key]; {
	case s.closed:
		s.abortLocked(u)
		return false, errors.New("the Store is closing")
	case time.Now().After(u.deadline):
		s.n.rejected++
		s.abortLocked(u)
		return false, errors.New("the upload is past its deadline")
	case there:
		s.n.duplicates++
		s.dropLocked(u)
		return false, nil
	}
	u.buf.Commit()
	n := int64(u.buf.Len())
	s.held -= n
	s.uploads--
	s.used += n
	o := &object{key: u.key, buf: u.buf}
	o.place = s.lru.PushFront(o)
	s.objects[u.key] = o
	s.n.puts++
	s.feed.publish(store.Stored, u.key)
	return true, nil
}

// abort gives back the room of an upload that will not be committed.
func (s *shelf) abort(u *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abortLocked(u)
}

func (s *shelf) abortLocked(u *upload) {
	s.n.aborted++
	s.dropLocked(u)
}

// dropLocked ends an upload, for whatever reason, without storing it.
func (s *shelf) dropLocked(u *upload) {
	s.held -= int64(u.buf.Len())
	s.uploads--
	u.buf.Abort()
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

// close drops every object and refuses all further uploads.
func (s *shelf) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, o := range s.objects {
		s.unlinkLocked(o)
	}
}
