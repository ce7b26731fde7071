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
	places int // that there are
	room   int // requests that may wait

	taken   int
	waiting int
	turns   list.List // of *party with somebody who waits; the front one has its turn
	parties map[string]*party
}

// party is a tenant's part of the line. There is one while somebody waits.
type party struct {
	name    string
	weight  int
	left    int       // requests that it may let in before its turn ends; 0 before it begins
	waiters list.List // of *waiter, in order of arrival
	turn    *list.Element
}

// waiter is one request in line.
type waiter struct {
	party *party
	at    *list.Element // nil once it has left the line
	since time.Time
	// done is closed when the request was given a place, or its own to another tenant.
	done    chan struct{}
	dropped bool // it was the latter; set before done is closed
}

func newLine(places, room int) *line {
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
	for l.waiting > 0 && l.take() {
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

// join puts a request into the line, or returns nil when there is no room for it. Room is shared: when it runs
// out, the tenant that takes up most of it for its weight gives up its latest.
func (l *line) join(name string, weight int, now time.Time) *waiter {
	p := l.parties[name]
	if p == nil {
		p = &party{name: name}
	}
	p.weight = max(1, weight) // as the keys have it now
	if l.waiting >= l.room && !l.makeRoom(p) {
		return nil
	}
	if p.turn == nil { // it was not in line
		l.parties[name] = p
		p.turn = l.turns.PushBack(p)
	}
	w := &waiter{party: p, since: now, done: make(chan struct{})}
	w.at = p.waiters.PushBack(w)
	l.waiting++
	return w
}

// makeRoom drops a request of the tenant that takes up most room, if that is another one than p, and would
// be even if p had one more.
func (l *line) makeRoom(p *party) bool {
	var most *party
	for e := l.turns.Front(); e != nil; e = e.Next() {
		if q := e.Value.(*party); q != p && (most == nil || q.waiters.Len()*most.weight > most.waiters.Len()*q.weight) {
			most = q
		}
	}
	if most == nil || most.waiters.Len()*p.weight <= (p.waiters.Len()+1)*most.weight {
		return false
	}
	w := most.waiters.Back().Value.(*waiter)
	l.remove(w)
	w.dropped = true
	close(w.done)
	return true
}

// remove takes a request out of the line. It says whether it was there.
func (l *line) remove(w *waiter) bool {
	if w.at == nil {
		return false
	}
	p := w.party
	p.waiters.Remove(w.at)
	w.at = nil
	l.waiting--
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
