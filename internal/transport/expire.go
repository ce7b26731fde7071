// SPDX-License-Identifier: Apache-2.0

package transport

import "time"

// idleList holds the tickets that nobody waits for, those first that expire first: all live equally
// long. One timer serves all of them, since most are gone long before it fires. It is guarded by r.mu.
type idleList struct {
	r           *receiver
	first, last *ticket
	timer       *time.Timer // nil before the first ticket
	armed       bool
}

// add puts t at the end of the list, with all of its life before it.
func (l *idleList) add(t *ticket) {
	l.remove(t)
	t.until = time.Now().Add(l.r.cfg.GrantTTL)
	if t.before = l.last; t.before != nil {
		t.before.after = t
	} else {
		l.first = t
	}
	l.last = t
	l.arm()
}

// remove takes t out of the list, if it is there.
func (l *idleList) remove(t *ticket) {
	if t.until.IsZero() {
		return
	}
	if t.before != nil {
		t.before.after = t.after
	} else {
		l.first = t.after
	}
	if t.after != nil {
		t.after.before = t.before
	} else {
		l.last = t.before
	}
	t.before, t.after, t.until = nil, nil, time.Time{}
}

// arm has the timer fire for the first ticket, unless it will fire before that anyway.
func (l *idleList) arm() {
	if l.armed || l.first == nil || l.r.closed {
		return
	}
	l.armed = true
	if d := time.Until(l.first.until); l.timer == nil {
		l.timer = time.AfterFunc(d, l.expire)
	} else {
		l.timer.Reset(d)
	}
}

// expire runs when the timer fires.
func (l *idleList) expire() {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.armed = false
	for now := time.Now(); l.first != nil && !l.first.until.After(now); {
		l.r.stepTicketLocked(l.first, evExpire, "expire", errLate)
	}
	l.arm()
}

func (l *idleList) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
