// SPDX-License-Identifier: Apache-2.0

package admit

import "container/list"

// share is an amount of waiting: requests, and the bytes of memory that they hold meanwhile.
type share struct {
	requests int
	bytes    int64
}

func (s share) with(requests int, bytes int64) share {
	return share{s.requests + requests, s.bytes + bytes}
}

// beyond says which part of room s is over, nil if it fits. Room of 0 bytes is no limit to them.
func (s share) beyond(room share) error {
	switch {
	case s.requests > room.requests:
		return errFull
	case room.bytes > 0 && s.bytes > room.bytes:
		return errBytes
	}
	return nil
}

// of returns the part of s that err is about.
func (s share) of(err error) int64 {
	if err == errBytes {
		return s.bytes
	}
	return int64(s.requests)
}

// cut is what a tenant has to give up for another: its latest requests, the last in front.
type cut struct {
	party *party
	keeps share
	next  *list.Element // the latest that it keeps
	drops []*waiter
	why   error
}

// makeRoom drops requests of the tenants that take up most for their weight until one more of p, with so many bytes,
// fits. A tenant gives up what it has beyond p's share, had p one more; where that is not enough nobody is dropped, and
// the answer says what there is no room for.
func (l *line) makeRoom(p *party, bytes int64) error {
	own := p.waiting.with(1, bytes)
	all := l.waiting.with(1, bytes)
	var cuts []*cut
	for {
		short := all.beyond(l.room)
		if short == nil {
			break
		}
		if cuts == nil {
			cuts = l.cuts(p)
		}
		c := most(cuts, short)
		if c == nil || c.keeps.of(short)*int64(p.weight) <= own.of(short)*int64(c.party.weight) {
			return short
		}
		w := c.next.Value.(*waiter)
		c.next, c.keeps, c.why = c.next.Prev(), c.keeps.with(-1, -w.bytes), short
		c.drops = append(c.drops, w)
		all = all.with(-1, -w.bytes)
	}
	for _, c := range cuts {
		for _, w := range c.drops {
			l.remove(w)
			w.dropped = c.why
			close(w.done)
		}
	}
	return nil
}

// cuts returns one for each tenant in line but p.
func (l *line) cuts(p *party) []*cut {
	var out []*cut
	for e := l.turns.Front(); e != nil; e = e.Next() {
		if q := e.Value.(*party); q != p {
			out = append(out, &cut{party: q, keeps: q.waiting, next: q.waiters.Back()})
		}
	}
	return out
}

// most returns the cut of the tenant that takes up most of what is short for its weight, nil without any.
func most(cuts []*cut, short error) (out *cut) {
	for _, c := range cuts {
		if out == nil || c.keeps.of(short)*int64(out.party.weight) > out.keeps.of(short)*int64(c.party.weight) {
			out = c
		}
	}
	return out
}
