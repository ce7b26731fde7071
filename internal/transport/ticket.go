// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// errLate is why an expired transfer is missing.
var errLate = errors.New("nobody waited for it in time")

// errCancelled is why a cancelled transfer is missing.
var errCancelled = errors.New("cancelled")

// ticket implements Ticket. The fields of the first group never change.
type ticket struct {
	r       *receiver
	room    *room
	id      transferID
	attempt uint32
	done    chan struct{} // closed once the outcome for waiters is known

	// Guarded by r.mu.
	state   ticketState
	ghost   bool     // ended, but its sender brings what others wait for
	sender  *session // the connection on which it was reserved or is awaited
	awaits  bool     // sender waits to hear how it ends
	err     error    // why there is no object
	reason  string   // the same, as metrics name it
	waiters int
	// While nobody waits, in r.idle.
	before, after *ticket
	until         time.Time // zero when it is not there
}

// Grant implements Ticket.
func (t *ticket) Grant() control.Grant {
	return control.Grant{
		Address:    t.r.address,
		Transfer:   t.id.String(),
		Attempt:    t.attempt,
		Generation: t.r.generation,
		Bytes:      t.room.want.Bytes,
	}
}

// stepTicketLocked feeds e to t and reports whether it meant anything. reason and cause are kept when
// they are the first to end the transfer.
func (r *receiver) stepTicketLocked(t *ticket, e ticketEvent, reason string, cause error) bool {
	from := t.state
	t.state = nextTicket(from, e)
	if t.state == from {
		return false
	}
	if t.state != claimed {
		t.wakeLocked(reason, cause)
	}
	t.tellSenderLocked()
	if t.state == ready {
		t.untieLocked() // there is nothing left to prove
		if t.waiters == 0 {
			r.idle.add(t)
		}
		return true
	}
	r.idle.remove(t)
	r.n.inFlight.Dec()
	if t.state == claimed {
		r.n.done.Inc()
	} else {
		r.m.transfers.WithLabelValues(sideReceiver, t.state.String(), t.reason).Inc()
	}
	r.leaveLocked(t)
	return true
}

// tellSenderLocked tells the sender of t how it ended, if it waits for that, or that nobody wants its
// object any more.
func (t *ticket) tellSenderLocked() {
	s, rm := t.sender, t.room
	switch {
	case s == nil || t.state == claimed:
	case t.awaits:
		t.awaits = false
		s.answer(frameComplete, flight{t.id, t.attempt}, lateStatus(t.state), t.reasonText())
	case t.state == ready || rm.writer == s: // it learns from the answer to its own frame
	case rm.author == t && (t.state == failed || len(rm.members) > 1): // it failed it, or others need it
	default:
		s.answer(frameCancel, flight{t.id, t.attempt}, 0, t.reasonText())
	}
}

func (t *ticket) reasonText() string {
	if t.err == nil {
		return ""
	}
	return t.err.Error()
}

// wakeLocked fixes the outcome for waiters. An object that became ready can still expire or be
// cancelled, which replaces the outcome; an error never is.
func (t *ticket) wakeLocked(reason string, cause error) {
	if t.err == nil && cause != nil {
		t.reason, t.err = reason, fmt.Errorf("%w: transfer %s: %w", ErrMissing, t.id, cause)
	}
	select {
	case <-t.done:
	default:
		close(t.done)
	}
}

// forgetLocked makes a tombstone of a ticket.
func (r *receiver) forgetLocked(t *ticket) {
	t.untieLocked()
	delete(r.live, t.id)
	r.past.add(t.id, t.state)
}

// untieLocked frees a ticket of the connection of its sender.
func (t *ticket) untieLocked() {
	if t.sender != nil {
		delete(t.sender.reserved, t)
		t.sender = nil
	}
}

// Wait implements Ticket.
func (t *ticket) Wait(ctx context.Context) (*arena.Buf, embedding.Meta, error) {
	t.r.mu.Lock()
	t.waiters++
	t.r.idle.remove(t)
	t.r.mu.Unlock()

	select {
	case <-t.done:
		return t.claim()
	case <-ctx.Done():
		t.leave()
		return nil, embedding.Meta{}, fmt.Errorf("transport: waiting for transfer %s: %w", t.id, context.Cause(ctx))
	}
}

// claim ends a Wait whose outcome is known.
func (t *ticket) claim() (*arena.Buf, embedding.Meta, error) {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.waiters--
	if t.state == ready {
		buf, meta := t.room.buf.Retain(), t.room.meta
		t.r.stepTicketLocked(t, evClaim, "", nil)
		return buf, meta, nil
	}
	if t.err != nil {
		return nil, embedding.Meta{}, t.err
	}
	return nil, embedding.Meta{}, fmt.Errorf("%w: transfer %s", ErrClaimed, t.id)
}

// leave ends a Wait whose ctx ended. The last one to leave starts the expiry anew.
func (t *ticket) leave() {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.waiters--
	if t.waiters == 0 && !t.state.terminal() {
		t.r.idle.add(t)
	}
}

// Cancel implements Ticket.
func (t *ticket) Cancel() {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.stepTicketLocked(t, evCancel, "cancel", errCancelled)
}

// nTombstones bounds what a receiver remembers of transfers that ended, to answer late frames precisely;
// others are answered "unknown". It is a power of two.
const nTombstones = 8192

// tombstones remembers the end states of the last transfers: each id has one place, which the next one
// that falls on it takes over.
type tombstones [nTombstones]struct {
	id    transferID
	state ticketState
}

func slotOf(id transferID) int { return (int(id[0]) | int(id[1])<<8) % nTombstones }

func (p *tombstones) add(id transferID, s ticketState) {
	at := &p[slotOf(id)]
	at.id, at.state = id, s
}

// of returns the state in which a transfer ended, if that is remembered.
func (p *tombstones) of(id transferID) (ticketState, bool) {
	at := &p[slotOf(id)]
	return at.state, at.id == id && at.state.terminal()
}
