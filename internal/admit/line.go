// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"container/list"
	"time"
)

// line gives out places, and says whose turn it is while there are none: the tenants take turns, each letting
// in as many of its requests as its weight says, in order of arrival. It is not safe for concurrent use.
//
// While anybody waits, all places are taken. A tenant that comes back to an empty queue joins at the end of the
// turns, so nobody is passed over for more than one round.
type line struct {
	places int   // that there are
	room   share // what may wait

	taken   int
	waiting share
	turns   list.List // of *party with somebody who waits; the front one has its turn
	parties map[string]*party
}

// party is a tenant's part of the line. There is one while somebody waits.
type party struct {
	name    string
	weight  int
	left    int       // requests that it may let in before its turn ends; 0 before it begins
	waiters list.List // of *waiter, in order of arrival
	waiting share
	turn    *list.Element
}

// waiter is one request in line.
type waiter struct {
	party *party
	at    *list.Element // nil once it has left the line
	since time.Time
	bytes int64 // of memory that it holds while it waits
	// done is closed when the request was given a place, or its own to another tenant.
	done    chan struct{}
	dropped error // why it was the latter, errFull or errBytes; set before done is closed
}

func newLine(places int, room share) *line {
	return &line{places: places, room: room, parties: map[string]*party{}}
}

// take gives out a place if there is one.
func (l *line) take() bool {
	if l.taken >= l.places {
		return false
	}
	l.taken++
	return true
}

// leave gives a place back, which may be somebody's.
func (l *line) leave() {
	l.taken--
	for l.waiting.requests > 0 && l.take() {
		w := l.next()
		close(w.done)
	}
}

// next takes the request whose turn it is out of the line.
func (l *line) next() *waiter {
	p := l.turns.Front().Value.(*party)
	if p.left == 0 {
		p.left = p.weight
	}
	p.left--
	w := p.waiters.Front().Value.(*waiter)
	if p.left == 0 {
		l.turns.MoveToBack(p.turn)
	}
	l.remove(w)
	return w
}

// join puts a request that holds so many bytes into the line, or says what there is no room for, errFull or
// errBytes. Room is shared: when it runs out, tenants that take up more of it for their weight give up their latest.
func (l *line) join(name string, weight int, bytes int64, now time.Time) (*waiter, error) {
	p := l.parties[name]
	if p == nil {
		p = &party{name: name}
	}
	p.weight = max(1, weight) // as the keys have it now
	if err := l.makeRoom(p, bytes); err != nil {
		return nil, err
	}
	if p.turn == nil { // it was not in line
		l.parties[name] = p
		p.turn = l.turns.PushBack(p)
	}
	w := &waiter{party: p, since: now, bytes: bytes, done: make(chan struct{})}
	w.at = p.waiters.PushBack(w)
	p.waiting = p.waiting.with(1, bytes)
	l.waiting = l.waiting.with(1, bytes)
	return w, nil
}

// remove takes a request out of the line. It says whether it was there.
func (l *line) remove(w *waiter) bool {
	if w.at == nil {
		return false
	}
	p := w.party
	p.waiters.Remove(w.at)
	w.at = nil
	p.waiting = p.waiting.with(-1, -w.bytes)
	l.waiting = l.waiting.with(-1, -w.bytes)
	if p.waiters.Len() == 0 {
		l.turns.Remove(p.turn)
		delete(l.parties, p.name)
	}
	return true
}

// oldest returns since when the request waits that came first, and whether any does.
func (l *line) oldest() (since time.Time, ok bool) {
	for e := l.turns.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*party).waiters.Front().Value.(*waiter); !ok || w.since.Before(since) {
			since, ok = w.since, true
		}
	}
	return since, ok
}
