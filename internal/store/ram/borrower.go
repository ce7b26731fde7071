// SPDX-License-Identifier: Apache-2.0

package ram

import "afterimage/internal/arena"

// borrower is a client process that maps the Store's memory. Its link is the connection whose end is
// the end of all its loans. shelf.mu guards the fields below arena.
type borrower struct {
	id    uint64
	arena *arena.Mapping // the client's memory, which PUTs are copied from; nil if it has none to show

	account *account // of its pins; nil while it makes none
	lanes   map[uint64]*track
	loans   map[uint64]*loan
	recalls []uint64 // loans to ask back
	gone    bool
	wake    chan struct{} // has a value when recalls does
}

// track is the Store's view of one connection of a borrower for calls.
type track struct {
	id      uint64
	to      *borrower
	request uint64   // the last GET
	last    []uint64 // what that one was lent
	dead    bool     // the client closed it, and lends nothing more
	ended   bool     // its session is over
}

// newBorrower makes a borrower of a client that shows its memory, or nil for none.
func newBorrower(id uint64, m *arena.Mapping) *borrower {
	return &borrower{id: id, arena: m, lanes: make(map[uint64]*track), loans: make(map[uint64]*loan), wake: make(chan struct{}, 1)}
}

// join gives a borrower one more lane, or nil when the borrower is gone or has one of this number.
func (s *shelf) join(b *borrower, id uint64) *track {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.gone || b.lanes[id] != nil {
		return nil
	}
	ln := &track{id: id, to: b}
	b.lanes[id] = ln
	return ln
}

// leave ends the session of a lane. The lane stays known until its client, too, says that it ended.
func (s *shelf) leave(ln *track) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln.ended = true
	if ln.dead {
		delete(ln.to.lanes, ln.id)
	}
}

// laneEnded takes note that the client closed a lane, in the middle of request unless that is 0. What
// the request was lent never reached the client.
func (s *shelf) laneEnded(b *borrower, id, request uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln := b.lanes[id]
	if ln == nil {
		return
	}
	ln.dead = true
	if request != 0 && ln.request == request {
		s.giveBackAllLocked(b, ln.last)
	}
	if ln.ended {
		delete(b.lanes, id)
	}
}

// end ends all loans of a borrower. Unless its process is gone, it may still be reading: the memory on
// loan is then kept from any other use.
func (s *shelf) end(b *borrower, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.gone = true
	s.closeAccountLocked(b, gone)
	for _, l := range b.loans {
		if !gone {
			l.o.buf.Retain().Quarantine("on loan as the Store cut the connection")
		}
		s.giveBackLocked(l)
	}
	clear(b.lanes)
}

// takeRecalls returns the loans to ask back.
func (s *shelf) takeRecalls(b *borrower) []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := b.recalls
	b.recalls = nil
	return ids
}
