// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"

	"afterimage/internal/arena"
	"afterimage/internal/control"
)

// askFrom is the size of objects whose receiver is asked before they are copied: a round trip is then
// far less than the time that bytes which nobody wants would take.
const askFrom = 4 << 20

// maxCuts is how often one Send survives the loss of its connection.
const maxCuts = 1

// delivery is one Send at work. It belongs to one goroutine.
type delivery struct {
	s      *sender
	grant  control.Grant
	flight flight
	buf    *arena.Buf
	link   *link      // of the last dial that went well
	call   *call      // what was asked there
	dup    *duplicate // of buf; nil while none was needed
	cuts   int
	reason string // the receiver's status, where there is one
	err    error
}

// run goes from state to state until the outcome is known.
func (d *delivery) run(ctx context.Context) deliveryState {
	defer d.end()
	state, do := connecting, dial
	for {
		var e deliveryEvent
		switch do {
		case dial:
			e = d.dial(ctx)
		case ask:
			e = d.ask(ctx)
		case write:
			e = d.write(ctx)
		case await:
			e = d.await(ctx)
		default: // report; abandon is up to those who know whether others joined
			return state
		}
		state, do = nextDelivery(state, e)
	}
}

// end gives back what the delivery used.
func (d *delivery) end() {
	d.recycle()
	if d.dup != nil {
		d.s.copies.drop(d.buf, d.dup)
	}
}

// recycle gives the last call back.
func (d *delivery) recycle() {
	if d.call != nil {
		d.link.retire(d.flight, d.call)
		d.call = nil
	}
}

// dial takes the connection to the receiver, or makes one.
func (d *delivery) dial(ctx context.Context) deliveryEvent {
	l, err := d.s.connect(ctx, d.grant.Address)
	if err != nil {
		return d.failed(ctx, err)
	}
	// A grant of a process that has restarted is void: its bytes need not travel to learn that.
	if l.generation != d.grant.Generation {
		d.reason = statusGeneration.String()
		d.err = fmt.Errorf("%w: granted by generation %d, %d answers there", ErrGone, d.grant.Generation, l.generation)
		return evRefused
	}
	d.recycle()
	d.link = l
	if ctx.Err() != nil { // select picks at random when both are ready
		return d.failed(ctx, fmt.Errorf("before it was sent: %w", context.Cause(ctx)))
	}
	if d.call, err = l.begin(d.flight, d.buf.Len()); err != nil {
		return d.failed(ctx, err)
	}
	if d.cuts > 0 || d.buf.Len() >= askFrom && !l.canLend(d.buf.Len()) {
		return evAskFirst
	}
	return evConnected
}

// ask asks where the transfer stands, after a cut: anew.
func (d *delivery) ask(ctx context.Context) deliveryEvent {
	typ := frameReserve
	if d.cuts > 0 {
		typ = frameRefresh
	}
	d.link.post(header{Type: typ, Transfer: d.flight.id, Attempt: d.flight.attempt, Generation: d.link.generation})
	return d.await(ctx)
}

// write has the object sent, and waits for the confirmation.
func (d *delivery) write(ctx context.Context) deliveryEvent {
	if err := d.link.send(d.flight, d.parcel()); err != nil {
		return d.failed(ctx, err)
	}
	return d.await(ctx)
}

// parcel is what is sent: a copy that can be lent where the object itself cannot, and there is room for one.
func (d *delivery) parcel() *arena.Buf {
	own := d.s.cfg.Arena
	if d.dup == nil && d.link.canLend(d.buf.Len()) && !d.buf.In(own) {
		d.dup = d.s.copies.take(own, d.buf)
	}
	if d.dup != nil && d.dup.buf != nil {
		return d.dup.buf
	}
	return d.buf
}

// await waits for an answer.
func (d *delivery) await(ctx context.Context) deliveryEvent {
	select {
	case a := <-d.call.answer:
		return d.heard(ctx, a)
	case <-ctx.Done():
	}
	d.link.end(d.flight, d.call)
	select { // an answer that came in time counts
	case a := <-d.call.answer:
		return d.heard(ctx, a)
	default:
		d.err = fmt.Errorf("waiting for the receiver: %w", context.Cause(ctx))
		return evGiveUp
	}
}

// heard turns an answer into an event.
func (d *delivery) heard(ctx context.Context, a answer) deliveryEvent {
	switch {
	case a.err != nil:
		return d.failed(ctx, a.err)
	case a.status == statusGo:
		return evGo
	case a.status == statusFollow:
		return evFollow
	}
	if a.status == statusComplete {
		return evConfirmed
	}
	d.reason = a.status.String()
	d.err = fmt.Errorf("%w: receiver says %s: %s", a.status.class(), a.status, a.reason)
	return evRefused
}

// failed turns an error of the connection, or of waiting for one, into an event.
func (d *delivery) failed(ctx context.Context, err error) deliveryEvent {
	switch {
	case errors.Is(err, ErrRefused):
		d.err = err
		return evRefused
	case !errors.Is(err, ErrPeer):
		d.err = err // the caller's ctx
		return evGiveUp
	case d.link == nil || d.cuts >= maxCuts || errors.Is(err, ErrClosed) || ctx.Err() != nil:
		d.err = err
		return evUnreachable
	}
	d.cuts++
	return evCut
}
