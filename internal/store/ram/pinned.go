// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// syncLocked brings the account of pins up to date: loans that began and ended without a call, and how
// objects were used. What is pinned from here on is within the new allowances.
func (s *shelf) syncLocked() {
	s.gatherLocked()
	s.allotLocked()
}

// gatherLocked closes all allowances and takes note of every pin that was made under them. Until
// allotLocked nobody pins anything. An object that was hidden before has no other pins than those.
func (s *shelf) gatherLocked() {
	if len(s.tables) == 0 {
		return
	}
	for _, b := range s.tables {
		atomic.StoreUint64(s.index.allowance(b.account.place), (b.account.number+1)<<numberShift)
	}
	sources := 0
	for _, b := range s.tables {
		s.pinsLocked(b)
		b.account.number = (b.account.number + 1) & (1<<16 - 1)
		b.account.allowed = 0
		if s.newsLocked(b) {
			sources++
		}
	}
	s.touchLocked(sources > 1)
}

// pinsLocked compares a client's slots with what is known of them.
func (s *shelf) pinsLocked(b *borrower) {
	a := b.account
	top := int(min(a.load(topWord), tableSlots))
	for i := range max(top, a.known) {
		if a.seen[i] != 0 && a.slot(i, top) != a.seen[i] {
			a.seen[i] = 0
			if l := a.pins[i]; l != nil {
				a.pins[i] = nil
				a.pinned -= int64(l.o.buf.Len())
				s.giveBackLocked(l)
			}
		}
	}
	for i := range top {
		if w := a.slot(i, top); w != 0 && a.seen[i] == 0 {
			s.pinLocked(b, i, w)
		}
	}
	a.known = top
}

// pinLocked makes a loan of what a slot says, unless it is not valid: a client that pins reads its allowance
// again, sees that it is another one, and gives up. So does one that pins what is not there.
func (s *shelf) pinLocked(b *borrower, slot int, word uint64) {
	a, id := b.account, word&belowNumber
	o := s.pinnable[id]
	if o == nil || word>>numberShift != a.number || a.pinned+int64(o.buf.Len()) > a.allowed {
		return
	}
	s.holdLocked(o)
	a.seen[slot] = word
	a.pins[slot] = s.enterLocked(o, b, pinnedOnly|uint64(slot)<<pinSlotShift|id)
	a.pinned += int64(o.buf.Len())
}

// aloneLocked takes an object into the account of the client that alone has it pinned, or with -1 out of there.
func (s *shelf) aloneLocked(o *object, sign int64) {
	if len(o.loans) == 1 && o.loans[0].id&pinnedOnly != 0 {
		o.loans[0].to.account.alone += sign * int64(o.buf.Len())
	}
}

// newsLocked counts what a client did by itself, and reports whether it touched something.
func (s *shelf) newsLocked(b *borrower) bool {
	var hits, misses uint64
	s.touched, hits, misses = b.account.news(s.touched)
	s.n.gets += hits + misses
	s.n.hits += hits
	s.n.lent += hits
	s.n.misses += misses
	if hits > 0 {
		atomic.StoreUint64(s.index.heard(b.account.place), b.account.touches)
	}
	return hits > 0
}

// touchLocked makes what was touched the warmest, in the order of the touches.
func (s *shelf) touchLocked(mixed bool) {
	if len(s.touched) == 0 {
		return
	}
	if mixed {
		slices.SortStableFunc(s.touched, func(x, y touch) int { return cmp.Compare(x.at, y.at) })
	}
	now := time.Now()
	for _, t := range s.touched {
		if o := s.pinnable[t.id]; o != nil && o.place != nil {
			ago := time.Duration(now.UnixNano() - int64(t.at))
			s.warmLocked(o, now.Add(-max(ago, 0)))
		}
	}
	s.touched = s.touched[:0]
}

// allotLocked shares out what may still be lent: each client may pin what it alone has, and an equal part of
// that. So loans hold at most half the Store whatever clients do until the next gatherLocked. An object that
// others have, too, stays on loan when this one lets it go, and makes no room for something else; who has
// much of that asks for more, which is counted exactly.
func (s *shelf) allotLocked() {
	if len(s.tables) == 0 || s.closed {
		return
	}
	part := max(s.limit/2-s.lentSum, 0) / int64(len(s.tables))
	for _, b := range s.tables {
		a := b.account
		a.allowed = a.alone + part
		atomic.StoreUint64(s.index.allowance(a.place), a.number<<numberShift|uint64(a.allowed))
	}
}

// openAccount lets a borrower pin objects, as far as there are places.
func (s *shelf) openAccount(b *borrower, table words[uint64]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := slices.Index(s.taken[:], false)
	if place < 0 || s.closed {
		return false
	}
	s.taken[place] = true
	// The number goes on from that of the last client here: no word of it is taken for one of this one.
	number := atomic.LoadUint64(s.index.allowance(place)) >> numberShift
	atomic.StoreUint64(s.index.heard(place), 0)
	b.account = &account{words: table, place: place, number: number}
	s.gatherLocked()
	s.tables = append(s.tables, b)
	s.allotLocked()
	return true
}

// closeAccountLocked ends the pinning of a borrower, whose pins are loans like others from here on. Unless
// it is gone, its place goes to nobody else: it may still read the allowance there.
func (s *shelf) closeAccountLocked(b *borrower, gone bool) {
	if b.account == nil {
		return
	}
	s.gatherLocked()
	s.tables = slices.DeleteFunc(s.tables, func(x *borrower) bool { return x == b })
	s.taken[b.account.place] = !gone
	s.allotLocked()
}

// warmLocked makes an object the warmest.
func (s *shelf) warmLocked(o *object, at time.Time) {
	o.read = at
	s.orderOf(o).MoveToFront(o.place)
	o.tenant.lru.MoveToFront(o.mine)
}

// showLocked lets clients find an object without asking.
func (s *shelf) showLocked(o *object) {
	s.index.add(o)
	if o.entry >= 0 {
		s.pinnable[o.id] = o
	}
}

// hideLocked ends showLocked, and takes note of who has pinned the object.
func (s *shelf) hideLocked(o *object) {
	if o.entry < 0 {
		return
	}
	s.index.hide(o)
	s.syncLocked()
}
