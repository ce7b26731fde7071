// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// errLate is why an expired transfer is missing.
var errLate = errors.New("nobody waited for it in time")

// errCancelled is why a cancelled transfer is missing.
var errCancelled = errors.New("cancelled")

// ticket implements Ticket. The fields of the first group never change.
type ticket struct {
	r       *receiver
	want    Want
	id      transferID
	attempt uint32
	done    chan struct{} // closed once the outcome for waiters is known

	// Guarded by r.mu. While the state is writing or pending, writer alone touches the bytes of buf.
	state   state
	buf     *arena.Buf // nil once handed out or released
	writer  *session
	meta    embedding.Meta // with ready
	err     error          // why there is no object
	reason  string         // the same, as metrics name it
	waiters int
	timer   *time.Timer // expiry; runs while nobody waits
}

// stepLocked feeds e to t and does what the state machine asks. reason and cause are kept when they
// are the first to end the transfer.
func (r *receiver) stepLocked(t *ticket, e event, reason string, cause error) action {
	from := t.state
	to, do := next(from, e)
	t.state = to
	switch do {
	case commit:
		t.buf.Commit()
		t.wakeLocked("", nil)
		if t.waiters == 0 {
			t.timer.Reset(r.cfg.GrantTTL)
		}
	case nudge:
		t.wakeLocked(reason, cause)
		t.writer.interrupt()
	case free:
		t.wakeLocked(reason, cause)
		if from == ready {
			t.buf.Release()
		} else {
			t.buf.Abort()
		}
		t.buf = nil
	}
	if to != from && to.terminal() {
		r.retireLocked(t)
	}
	return do
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

// retireLocked forgets a terminal ticket but for a tombstone, and counts it.
func (r *receiver) retireLocked(t *ticket) {
	t.timer.Stop()
	delete(r.live, t.id)
	r.past.add(t.id, t.state)
	r.m.inFlight.WithLabelValues(sideReceiver).Dec()
	r.m.transfers.WithLabelValues(sideReceiver, t.state.String(), t.reason).Inc()
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
	if t.r.stepLocked(t, evClaim, "", nil) == handOver {
		buf := t.buf
		t.buf = nil
		return buf, t.meta, nil
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
	t.r.stepLocked(t, evCancel, "cancel", errCancelled)
}

// expire runs when the timer fires. A Wait may have begun at the same moment.
func (t *ticket) expire() {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	if t.waiters == 0 {
		t.r.stepLocked(t, evExpire, "expire", errLate)
	}
}

// maxTombstones bounds what a receiver remembers of transfers that ended, to answer late frames
// precisely; older ones are answered "unknown". 24 bytes each.
const maxTombstones = 4096

// tombstones remembers the end states of the last transfers.
type tombstones struct {
	states map[transferID]state
	order  []transferID // ring, oldest at at
	at     int
}

func (p *tombstones) add(id transferID, s state) {
	if len(p.order) < maxTombstones {
		p.order = append(p.order, id)
	} else {
		delete(p.states, p.order[p.at])
		p.order[p.at] = id
		p.at = (p.at + 1) % maxTombstones
	}
	p.states[id] = s
}
