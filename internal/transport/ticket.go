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
	timer   *time.Timer // expiry; runs while nobody waits
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
		if t.waiters == 0 {
			t.timer.Reset(r.cfg.GrantTTL)
		}
		return true
	}
	t.timer.Stop()
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
	if t.sender != nil {
		delete(t.sender.reserved, t)
		t.sender = nil
	}
	delete(r.live, t.id)
	r.past.add(t.id, t.state)
}

// Wait implements Ticket.
func (t *ticket) Wait(ctx context.Context) (*arena.Buf, embedding.Meta, error) {
	t.r.mu.Lock()
	t.waiters++
	t.timer.Stop()
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
		t.timer.Reset(t.r.cfg.GrantTTL)
	}
}

// Cancel implements Ticket.
func (t *ticket) Cancel() {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.stepTicketLocked(t, evCancel, "cancel", errCancelled)
}

// expire runs when the timer fires. A Wait may have begun at the same moment.
func (t *ticket) expire() {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	if t.waiters == 0 {
		t.r.stepTicketLocked(t, evExpire, "expire", errLate)
	}
}

// maxTombstones bounds what a receiver remembers of transfers that ended, to answer late frames
// precisely; older ones are answered "unknown". 24 bytes each.
const maxTombstones = 4096

// tombstones remembers the end states of the last transfers.
type tombstones struct {
	states map[transferID]ticketState
	order  []transferID // ring, oldest at at
	at     int
}

func (p *tombstones) add(id transferID, s ticketState) {
	if len(p.order) < maxTombstones {
		p.order = append(p.order, id)
	} else {
		delete(p.states, p.order[p.at])
		p.order[p.at] = id
		p.at = (p.at + 1) % maxTombstones
	}
	p.states[id] = s
}
