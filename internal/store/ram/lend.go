// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"container/list"
	"slices"
	"time"

	"afterimage/internal/embedding"
)

// loan is the right of one borrower to read one object in the Store's memory. It ends when the
// borrower says so or goes away, and never by the Store's will.
type loan struct {
	id uint64
	o  *object
	to *borrower
}

// wish is one item of a GET by loan.
type wish struct {
	key   embedding.Key
	most  uint64
	exact bool
}

// offer answers a wish. Without a loan, o is held for a reply with its bytes.
type offer struct {
	st   status
	n    int
	o    *object
	loan *loan
}

// lend answers a whole GET, so that a client which gave it up finds either all of it or nothing. It
// reports false when the client closed the lane before its request was read.
func (s *shelf) lend(ln *track, request uint64, wishes []wish, out []offer) ([]offer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ln.dead || ln.to.gone {
		return out, false
	}
	ln.request, ln.last = request, ln.last[:0]
	s.syncLocked() // what was used before becomes warm before
	for _, w := range wishes {
		var f offer
		if f.o, f.n, f.st = s.wantLocked(w.key, w.most, w.exact); f.o != nil {
			s.holdLocked(f.o)
			if f.loan = s.loanLocked(f.o, ln.to); f.loan != nil {
				ln.last = append(ln.last, f.loan.id)
			}
		}
		out = append(out, f)
	}
	return out, true
}

// loanLocked turns a reader of o into a loan. It returns nil when loans would hold more than half the
// Store, and then asks for the oldest ones: PUTs never starve.
func (s *shelf) loanLocked(o *object, to *borrower) *loan {
	s.gatherLocked()
	defer s.allotLocked()
	if n := int64(o.buf.Len()); len(o.loans) == 0 && s.lentSum+n > s.limit/2 {
		s.recallLocked(n)
		return nil
	}
	s.nextLoan++
	s.n.lent++
	return s.enterLocked(o, to, s.nextLoan)
}

// enterLocked enters a loan into the books; holdLocked counted its reader.
func (s *shelf) enterLocked(o *object, to *borrower, id uint64) *loan {
	if len(o.loans) == 0 {
		s.lentSum += int64(o.buf.Len())
		o.lent = s.lent.PushFront(o)
	} else {
		s.lentOrder(o).MoveToFront(o.lent)
	}
	s.aloneLocked(o, -1)
	l := &loan{id: id, o: o, to: to}
	o.loans = append(o.loans, l)
	s.aloneLocked(o, 1)
	to.loans[l.id] = l
	s.loans++
	return l
}

// giveBackLocked ends a loan.
func (s *shelf) giveBackLocked(l *loan) {
	delete(l.to.loans, l.id)
	o := l.o
	s.aloneLocked(o, -1)
	o.loans = slices.DeleteFunc(o.loans, func(x *loan) bool { return x == l })
	s.aloneLocked(o, 1)
	s.loans--
	if len(o.loans) == 0 {
		s.lentSum -= int64(o.buf.Len())
		s.lentOrder(o).Remove(o.lent)
		o.lent, o.asked = nil, false
	}
	s.doneLocked(o)
	s.wakeLocked()
}

// giveBack ends the loans of a borrower with these numbers. Those that it does not have are passed
// over: a return may cross the end of the same loan. So are pins, which end in the client's table: that
// there is something to see there is what any return says.
func (s *shelf) giveBack(b *borrower, ids []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBackAllLocked(b, ids)
	s.syncLocked()
}

func (s *shelf) giveBackAllLocked(b *borrower, ids []uint64) {
	for _, id := range ids {
		if l, ok := b.loans[id]; ok && id&pinnedOnly == 0 {
			s.giveBackLocked(l)
		}
	}
}

// lentOrder returns the list that an object on loan is in.
func (s *shelf) lentOrder(o *object) *list.List {
	if o.asked {
		return &s.asked
	}
	return &s.lent
}

// askAgain is how long the Store waits before it recalls a loan once more. The first time may have
// been too early: before its client had read of the loan, or while a request used it.
const askAgain = time.Second

// recallLocked asks for n bytes of loans back, those first that were lent longest ago.
func (s *shelf) recallLocked(n int64) {
	if s.lent.Len() == 0 && s.asked.Len() > 0 && time.Since(s.recalled) > askAgain {
		for e := s.asked.Back(); e != nil; e = s.asked.Back() {
			o := s.asked.Remove(e).(*object)
			o.asked = false
			o.lent = s.lent.PushFront(o)
		}
	}
	for e := s.lent.Back(); e != nil && n > 0; e = s.lent.Back() {
		o := s.lent.Remove(e).(*object)
		o.asked = true
		o.lent = s.asked.PushFront(o)
		n -= int64(o.buf.Len())
		s.recalled = time.Now()
		for _, l := range o.loans {
			s.n.recalls++
			l.to.recalls = append(l.to.recalls, l.id)
			select {
			case l.to.wake <- struct{}{}:
			default:
			}
		}
	}
}

// recallFor asks for what an object of n bytes lacks, and returns a channel that is closed with the
// next return. It reports false when there is nothing to wait for: no loan is out, or all were asked
// for too long ago, since requests use them.
func (s *shelf) recallFor(n int64) (<-chan struct{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	s.syncLocked()
	if short := s.reading + s.held + n - s.limit; short > 0 {
		n = short // or all of it, where there is room but not in one piece
	}
	s.recallLocked(n)
	if s.loans == 0 || time.Since(s.recalled) > recallWait {
		return nil, false
	}
	if s.returned == nil {
		s.returned = make(chan struct{})
	}
	return s.returned, true
}

func (s *shelf) wakeLocked() {
	if s.returned != nil {
		close(s.returned)
		s.returned = nil
	}
}
