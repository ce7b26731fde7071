// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync"

	"afterimage/internal/control"
)

// vow is a Reservation. Its connection is the one that reserved; if that breaks, the transfer has failed
// at the receiver.
type vow struct {
	s      *sender
	flight flight
	gone   chan struct{}
	once   sync.Once // closes ended
	ended  chan struct{}
	why    string // set before ended is closed
	broken bool   // gone is closed; guarded by the link's mu, or by nobody when there is none
}

// Reserve implements Sender.
func (s *sender) Reserve(g control.Grant) Reservation {
	v := &vow{s: s, gone: make(chan struct{}), ended: make(chan struct{})}
	id, err := parseTransfer(g.Transfer)
	s.mu.Lock()
	closed := s.closed
	if err == nil && !closed {
		v.flight = flight{id, g.Attempt}
		s.wg.Go(func() { v.keep(g) })
	}
	s.mu.Unlock()
	if err != nil || closed {
		v.breakLocked()
	}
	return v
}

// keep announces the object, and takes that back when the reservation ends without a Send that went
// well: the receiver then knows the transfer no longer, and drops the word.
func (v *vow) keep(g control.Grant) {
	l, err := v.s.connect(v.s.ctx, g.Address)
	if err != nil || l.generation != g.Generation || !l.vow(v) {
		v.breakLocked()
		return
	}
	l.post(header{Type: frameReserve, Transfer: v.flight.id, Attempt: v.flight.attempt, Generation: l.generation})
	select {
	case <-v.ended:
		l.abandonVow(v)
	case <-l.done:
	}
}

// vow registers v, unless the link is broken.
func (l *link) vow(v *vow) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.vows[v.flight] = v
	}
	return l.err == nil
}

// abandonVow forgets v, and says so unless the receiver ended it.
func (l *link) abandonVow(v *vow) {
	l.mu.Lock()
	if l.vows[v.flight] == v {
		delete(l.vows, v.flight)
	}
	broken := v.broken
	l.mu.Unlock()
	if !broken && v.why != "" {
		l.postText(header{Type: frameAbandon, Transfer: v.flight.id, Attempt: v.flight.attempt, Generation: l.generation}, v.why)
	}
}

// breakLocked tells whoever makes the object that nobody wants it.
func (v *vow) breakLocked() {
	if !v.broken {
		v.broken = true
		close(v.gone)
	}
}

// Gone implements Reservation.
func (v *vow) Gone() <-chan struct{} { return v.gone }

// End implements Reservation.
func (v *vow) End(reason string) {
	v.once.Do(func() {
		v.why = reason
		close(v.ended)
	})
}
