// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// Check asks whether the consumer at address can be delivered to, and returns how many shards it has: at each it
// reserves a few bytes under a name of its own, connects to where they would be written, and gives them up. Nothing is
// written. An error wraps ErrUnfit if the consumer cannot be written to as it is run.
func (c *Client) Check(ctx context.Context, address string) (shards int, err error) {
	p := c.peer(address)
	addresses, q, err := p.shards(ctx)
	if err != nil {
		return 0, fmt.Errorf("control channel: %w", err)
	}
	p.keep(p.address, q, nil)
	for _, at := range addresses {
		if err := p.checkShard(ctx, at); err != nil {
			return 0, fmt.Errorf("shard %s: %w", at, err)
		}
	}
	return len(addresses), nil
}

// checkShard is Check of one shard.
func (p *peer) checkShard(ctx context.Context, address string) error {
	name := rand.Text()
	r := newShardRun(p, address, []*delivery{{Item: Item{Transfer: name, Hash: name, Rows: 8, Cols: 8, DType: "float32", Size: 4}}})
	defer r.end()
	err := r.reserve(ctx)
	at := r.items[0]
	if err == nil {
		err = at.err
	}
	if err == nil {
		var e *engine
		if e, err = p.engine(ctx, r.q, at.answer.Session); err == nil {
			if !e.at.contains(at.answer.Address, at.of.Bytes()) {
				err = fmt.Errorf("%w: it reserves memory that its Transfer Engine does not announce", ErrUnfit)
			}
			p.keepEngine(at.answer.Session, e, nil)
		}
	}
	return errors.Join(err, r.giveUp(ctx, []bool{true}))
}
