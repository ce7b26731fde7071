// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Item is an embedding to be delivered.
type Item struct {
	Transfer string // its name at the consumer, never used before
	Hash     string // vLLM's mm_hash
	Rows     int
	Cols     int
	DType    string // as torch calls it: bfloat16
	Size     int    // bytes of an element
	// Payload returns the values, row by row. It is called once at most, when a shard has reserved memory for them, so
	// that what the consumer holds is fetched from nowhere. The bytes are read until Deliver returns.
	Payload func(ctx context.Context) ([]byte, error)
}

// Bytes is the size of the values.
func (it Item) Bytes() int { return it.Rows * it.Cols * it.Size }

// How an embedding came to be at a consumer.
type How string

// The ways, the one that cost most first.
const (
	Written  How = "written"  // its bytes were sent, to one shard at least
	Followed How = "followed" // another writer was at it
	Resident How = "resident" // the consumer had it
)

// Outcome is what became of an item. After an error the consumer holds nothing for its transfer; where it could not be
// told so, the error wraps ErrUnsettled.
type Outcome struct {
	How How
	Err error
}

// Why an item was not delivered, where it matters to callers.
var (
	// ErrUnsettled: the consumer may hold memory for the transfer, and is told as soon as it can be reached.
	ErrUnsettled = errors.New("the consumer was not told that the transfer is given up")
	// ErrLost: another writer was at the embedding, and gave up. A transfer of another name may succeed.
	ErrLost = errors.New("another writer of this embedding gave up")
	// errGivenUp: somebody gave the transfer up at the consumer.
	errGivenUp = errors.New("the consumer has given the transfer up")
)

// delivery is an item on its way.
type delivery struct {
	Item
	payload func() ([]byte, error) // Payload, called once
}

// Deliver brings items, whose hashes differ, to every shard of the consumer at address, and answers them in order. It
// returns when each is at all shards, or given up at all.
func (c *Client) Deliver(ctx context.Context, address string, items []Item) []Outcome {
	out := make([]Outcome, len(items))
	p := c.peer(address)
	if p.left() {
		return failAll(out, ErrLeftAlone)
	}
	addresses, first, err := p.shards(ctx)
	if err != nil {
		p.leave(err)
		return failAll(out, fmt.Errorf("control channel: %w", err))
	}
	ds := make([]*delivery, len(items))
	for i, it := range items {
		ds[i] = &delivery{Item: it, payload: sync.OnceValues(func() ([]byte, error) { return it.fetch(ctx) })}
	}
	runs := make([]*shardRun, len(addresses))
	var all sync.WaitGroup
	for n, at := range addresses {
		r := newShardRun(p, at, ds)
		if runs[n] = r; at == p.address && first != nil {
			r.q, first = first, nil
		}
		all.Go(func() { r.run(ctx) })
	}
	all.Wait()
	if first != nil { // the address that was registered is none of the shards'
		p.keep(p.address, first, nil)
	}
	p.judge(ctx, runs, out)
	for _, r := range runs {
		r.end()
	}
	return out
}

// fetch calls Payload and holds the answer against the item.
func (it Item) fetch(ctx context.Context) ([]byte, error) {
	b, err := it.Payload(context.WithoutCancel(ctx))
	if err == nil && len(b) != it.Bytes() {
		err = fmt.Errorf("%d bytes of values for %d x %d of %s", len(b), it.Rows, it.Cols, it.DType)
	}
	return b, err
}

func failAll(out []Outcome, err error) []Outcome {
	for i := range out {
		out[i].Err = err
	}
	return out
}

// judge says of each item how it came to the shards; what is not at all of them is given up at all.
func (p *peer) judge(ctx context.Context, runs []*shardRun, out []Outcome) {
	failed := make([]bool, len(out))
	whole := true
	for i := range out {
		out[i].How = Resident
		for _, r := range runs {
			at := r.items[i]
			switch {
			case at.err != nil && out[i].Err == nil:
				out[i].Err, failed[i] = at.err, true
			case at.how == Written, at.how == Followed && out[i].How == Resident:
				out[i].How = at.how
			}
		}
		whole = whole && !failed[i]
	}
	if whole {
		p.well()
		return
	}
	var all sync.WaitGroup
	unsettled := make([]error, len(runs))
	for n, r := range runs {
		if r.broken != nil {
			p.leave(r.broken)
		}
		all.Go(func() { unsettled[n] = r.giveUp(ctx, failed) })
	}
	all.Wait()
	if err := errors.Join(unsettled...); err != nil {
		for i := range out {
			if failed[i] {
				out[i].Err = fmt.Errorf("%w: %w: %w", out[i].Err, ErrUnsettled, err)
			}
		}
	}
}
