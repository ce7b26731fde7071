// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// holding is what a shard holds for a transfer, as far as it is known here.
type holding int

const (
	nothing holding = iota // it was not asked, or refused
	perhaps                // it did not answer
	held                   // memory, of which nothing is written, or all
	dirty                  // memory that a broken write may still be applied to
)

// reserved is an item at one shard.
type reserved struct {
	of     *delivery
	answer reservation
	holds  holding
	how    How
	err    error // why it is not there
}

// shardRun brings the items of a delivery to one shard. One goroutine uses it.
type shardRun struct {
	p       *peer
	address string
	q       *requester // nil until the first call, and after an error
	items   []*reserved
	broken  error // the shard did not do what it is there for
}

func newShardRun(p *peer, address string, ds []*delivery) *shardRun {
	r := &shardRun{p: p, address: address, items: make([]*reserved, len(ds))}
	for i, d := range ds {
		r.items[i] = &reserved{of: d}
	}
	return r
}

// run takes all steps. What fails is left to giveUp.
func (r *shardRun) run(ctx context.Context) {
	if err := r.reserve(ctx); err != nil {
		r.fail(r.items, fmt.Errorf("reserve: %w", err))
		r.broken = err
		return
	}
	var writers, followers []*reserved
	for _, at := range r.items {
		switch a := at.answer; {
		case at.err != nil:
		case a.Cancelled:
			at.err = errGivenUp
		case a.Ready:
			at.how = Resident
		case a.Write && a.Bytes != at.of.Bytes():
			at.err = fmt.Errorf("reserved %d bytes for %d", a.Bytes, at.of.Bytes())
		case a.Write:
			writers = append(writers, at)
		default:
			followers = append(followers, at)
		}
	}
	if written := r.write(ctx, writers); len(written) > 0 {
		if err := r.complete(ctx, written); err != nil {
			r.fail(written, fmt.Errorf("complete: %w", err))
			r.broken = err
		}
	}
	r.follow(ctx, followers)
}

func (r *shardRun) fail(items []*reserved, err error) {
	for _, at := range items {
		at.err = err
	}
}

// call makes one call to the shard. After an error that is no refusal the next one has a new connection.
func (r *shardRun) call(ctx context.Context, request []byte, out any) error {
	if r.q == nil {
		q, err := r.p.control(ctx, r.address)
		if err != nil {
			return err
		}
		r.q = q
	}
	err := r.p.call(ctx, r.q, request, out)
	if err != nil && !isRefusal(err) {
		r.q.close()
		r.q = nil
	}
	return err
}

// end gives the connection back.
func (r *shardRun) end() {
	if r.q != nil {
		r.p.keep(r.address, r.q, nil)
	}
}

// reserve asks for memory for all items. An error is about all of them.
func (r *shardRun) reserve(ctx context.Context) error {
	if r.q == nil { // so that no doubt is left where there is no connection
		q, err := r.p.control(ctx, r.address)
		if err != nil {
			return err
		}
		r.q = q
	}
	ds := make([]*delivery, len(r.items))
	for i, at := range r.items {
		ds[i], at.holds = at.of, perhaps
	}
	var result json.RawMessage
	err := r.call(ctx, reserveRequest(ds), &result)
	if isRefusal(err) {
		for _, at := range r.items {
			at.holds, at.err = nothing, err
		}
		return nil
	}
	if err != nil {
		return err
	}
	answers, err := items(result, len(r.items))
	if err != nil {
		return err
	}
	for i, at := range r.items {
		at.err = at.take(answers[i], len(answers) > 1)
	}
	return nil
}

// take files the answer to a reserve, which is in an envelope of its own if there are several.
func (at *reserved) take(answer json.RawMessage, wrapped bool) error {
	e := envelope{OK: true, Result: answer}
	if wrapped {
		e = envelope{}
		if err := json.Unmarshal(answer, &e); err != nil {
			return fmt.Errorf("reserve: the answer %.80q: %w", answer, err)
		}
	}
	err := e.open(&at.answer)
	switch {
	case isRefusal(err):
		at.holds = nothing
	case err == nil:
		at.holds = held
	}
	return err
}

// write sends the bytes of items, and returns those that are in place.
func (r *shardRun) write(ctx context.Context, items []*reserved) (written []*reserved) {
	for n, at := range items {
		payload, err := at.of.payload()
		if err != nil {
			at.err = err
			continue
		}
		if err := r.writeOne(ctx, at, payload); err != nil {
			r.fail(items[n:], fmt.Errorf("write: %w", err))
			r.broken = err
			return written
		}
		at.how = Written
		written = append(written, at)
	}
	return written
}

func (r *shardRun) writeOne(ctx context.Context, at *reserved, payload []byte) error {
	name, address := at.answer.Session, at.answer.Address
	e, err := r.p.engine(ctx, r.q, name)
	if err != nil {
		return err
	}
	if !e.at.contains(address, len(payload)) {
		r.p.keepEngine(name, e, nil)
		return fmt.Errorf("%d bytes at %#x are in none of the buffers that the shard announced", len(payload), address)
	}
	cfg := r.p.c.cfg
	ctx, cancel := bound(ctx, cfg.WriteTimeout+time.Duration(len(payload)>>24)*time.Second)
	defer cancel()
	at.holds = dirty
	err = e.write(ctx, address, payload)
	r.p.keepEngine(name, e, err)
	if err == nil || errors.Is(err, errRejected) {
		at.holds = held
	}
	return err
}

// complete says that items are in place. An error is about all of them.
func (r *shardRun) complete(ctx context.Context, at []*reserved) error {
	var result json.RawMessage
	if err := r.call(ctx, completeRequest(at), &result); err != nil {
		return err
	}
	answers, err := items(result, len(at))
	if err != nil {
		return err
	}
	for i, at := range at {
		var c completion
		if err := json.Unmarshal(answers[i], &c); err != nil {
			return fmt.Errorf("the answer %.80q: %w", answers[i], err)
		}
		// Completed without having become ready is memory that was freed, since somebody cancelled meanwhile.
		if !c.Completed || !c.BecameReady {
			at.err = errGivenUp
		}
	}
	return nil
}
