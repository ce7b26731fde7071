// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// giveUp abandons the failed items at the shard: those of broken writes after what was on its way has arrived. What the
// shard cannot be told at once it is told in the background, and giveUp returns why.
func (r *shardRun) giveUp(ctx context.Context, failed []bool) error {
	var now, later []string
	for i, at := range r.items {
		switch {
		case !failed[i] || at.holds == nothing:
		case at.holds == dirty:
			later = append(later, at.of.Transfer)
		default:
			now = append(now, at.of.Transfer)
		}
	}
	err := r.abandon(ctx, now)
	if len(later) > 0 {
		time.Sleep(r.p.c.cfg.Drain)
		err = errors.Join(err, r.abandon(ctx, later))
	}
	return err
}

// abandon abandons transfers at the shard.
func (r *shardRun) abandon(ctx context.Context, transfers []string) error {
	for n, id := range transfers {
		if r.q == nil { // lost; of kept ones none is better than it was
			q, err := r.p.freshControl(ctx, r.address)
			if err != nil {
				r.p.c.settle(r.p, r.address, transfers[n:])
				return err
			}
			r.q = q
		}
		// An answer of any kind says that the shard has heard it.
		if err := r.call(ctx, abandonRequest(id), new(struct{})); err != nil && !isRefusal(err) {
			r.p.c.settle(r.p, r.address, transfers[n:])
			return err
		}
	}
	return nil
}

const (
	minSettle = 250 * time.Millisecond
	maxSettle = 15 * time.Second
)

// settle abandons transfers at a shard in the background, until the shard has heard it, Config.Settle has passed or
// the Client is closed.
func (c *Client) settle(p *peer, address string, transfers []string) {
	end := time.Now().Add(c.cfg.Settle)
	c.bg.Go(func() {
		for wait := minSettle; time.Now().Before(end); wait = min(2*wait, maxSettle) {
			select {
			case <-c.ctx.Done():
				return
			case <-time.After(wait):
			}
			if transfers = p.tell(c.ctx, address, transfers); len(transfers) == 0 {
				return
			}
		}
		c.cfg.Logger.Warn("a consumer was not told of transfers that were given up", "consumer", p.address, "transfers", len(transfers))
	})
}

// tell abandons transfers at a shard through a connection of its own, and returns those that the shard has not heard.
func (p *peer) tell(ctx context.Context, address string, transfers []string) []string {
	q, err := p.freshControl(ctx, address)
	if err != nil {
		return transfers
	}
	defer q.close()
	for n, id := range transfers {
		if err := p.call(ctx, q, abandonRequest(id), new(struct{})); err != nil && !isRefusal(err) {
			return transfers[n:]
		}
	}
	return nil
}

// Abandon has all shards of the consumer at address free what they hold for transfers, and refuse them from here on:
// those of a request that failed, or of a process that was killed. Nothing may be writing for them. What the shards
// cannot be told at once they are told in the background.
func (c *Client) Abandon(ctx context.Context, address string, transfers []string) error {
	p := c.peer(address)
	addresses, q, err := p.shards(ctx)
	if err != nil {
		// Which shards there are is asked anew with each attempt.
		c.settleAll(p, transfers)
		return fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	p.keep(p.address, q, nil)
	var all errgroup.Group
	for _, at := range addresses {
		all.Go(func() error {
			r := newShardRun(p, at, nil)
			defer r.end()
			return r.abandon(ctx, transfers)
		})
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	return nil
}

// settleAll abandons transfers at all shards of a consumer, in the background, once it says which it has.
func (c *Client) settleAll(p *peer, transfers []string) {
	end := time.Now().Add(c.cfg.Settle)
	c.bg.Go(func() {
		for wait := minSettle; time.Now().Before(end); wait = min(2*wait, maxSettle) {
			select {
			case <-c.ctx.Done():
				return
			case <-time.After(wait):
			}
			addresses, q, err := p.shards(c.ctx)
			if err != nil {
				continue
			}
			p.keep(p.address, q, nil)
			for _, at := range addresses {
				if left := p.tell(c.ctx, at, transfers); len(left) > 0 {
					c.settle(p, at, left)
				}
			}
			return
		}
		c.cfg.Logger.Warn("a consumer was not told of transfers that were given up", "consumer", p.address, "transfers", len(transfers))
	})
}
