// SPDX-License-Identifier: Apache-2.0

package transport

import "afterimage/internal/arena"

// loans are the ranges of this process's arena that one receiver may read.
type loans struct {
	bufs   map[flight]*loan
	bytes  int64
	oldest *loan // of a list in the order in which they were lent
	newest *loan
}

// loan is one range; the link holds a reference until the receiver says that it let go, or is gone.
type loan struct {
	flight   flight
	buf      *arena.Buf
	prev     *loan
	next     *loan
	recalled bool
}

// canLend says whether n bytes could be lent at this moment.
func (l *link) canLend(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.canLendLocked(n)
}

func (l *link) canLendLocked(n int) bool {
	return l.lends && l.loans.bytes+int64(n) <= l.s.cfg.Arena.Stats().Capacity/2
}

// lendLocked makes a loan of buf, if that is possible. Past a quarter of the arena the oldest ones are
// asked back, so that receivers which keep objects do not end up with all of an Encoder's memory.
func (l *link) lendLocked(f flight, buf *arena.Buf) bool {
	if l.err != nil || !l.lends || l.loans.bufs[f] != nil {
		return false
	}
	// The one in the making is not among them: a recall that overtakes its loan is lost.
	l.recallLocked(l.loans.bytes + int64(buf.Len()) - l.s.cfg.Arena.Stats().Capacity/4)
	if !buf.In(l.s.cfg.Arena) || !l.canLendLocked(buf.Len()) {
		return false
	}
	n := &loan{flight: f, buf: buf.Retain(), prev: l.loans.newest}
	if n.prev != nil {
		n.prev.next = n
	} else {
		l.loans.oldest = n
	}
	l.loans.newest = n
	l.loans.bufs[f] = n
	l.loans.bytes += int64(buf.Len())
	l.s.n.loans.Add(float64(buf.Len()))
	l.s.n.lent.Add(float64(buf.Len()))
	return true
}

// recallLocked asks for at least n bytes of loans back, with the next batch that is written.
func (l *link) recallLocked(n int64) {
	for x := l.loans.oldest; x != nil && n > 0; x = x.next {
		n -= int64(x.buf.Len())
		if x.recalled {
			continue
		}
		x.recalled = true
		h := header{Type: frameRecall, Transfer: x.flight.id, Attempt: x.flight.attempt, Generation: l.generation}
		p := parcel{n: headerBytes}
		h.append(p.head[:0])
		l.queue = append(l.queue, p)
	}
}

// creditLocked takes a loan back.
func (l *link) creditLocked(f flight) {
	x := l.loans.bufs[f]
	if x == nil {
		l.s.m.dropped.WithLabelValues(sideSender, "unknown credit").Inc()
		return
	}
	delete(l.loans.bufs, f)
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		l.loans.oldest = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		l.loans.newest = x.prev
	}
	l.backLocked(x)
	x.buf.Release()
}

func (l *link) backLocked(x *loan) {
	l.loans.bytes -= int64(x.buf.Len())
	l.s.n.loans.Sub(float64(x.buf.Len()))
}

func (l *link) holdsLoans() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.loans.bufs) > 0
}

// settle ends the loans of a connection that is closed. If it was closed on this side, the receiver may
// be reading still: what is on loan then is never used again.
func (l *link) settle() {
	l.s.forget(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.loans.bufs {
		l.backLocked(x)
		if l.closed {
			x.buf.Quarantine("on loan as its sender closed")
		} else {
			x.buf.Release()
		}
	}
	l.loans = loans{}
	l.nc.Close()
}
