// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// given are transfers that are given up.
type given struct {
	transfers []string
	// late says that bytes may still come for them. The shard gets Config.Drain to take those in, counted from when it
	// is known to run: one that stood still has yet to read what its host has received.
	late bool
}

// giveUp abandons the failed items at the shard: those of broken writes after what was on its way has arrived. What the
// shard cannot be told at once it is told in the background, and giveUp returns why.
func (r *shardRun) giveUp(ctx context.Context, failed []bool) error {
	now, later := given{}, given{late: true}
	for i, at := range r.items {
		switch {
		case !failed[i] || at.holds == nothing:
		case at.holds == dirty:
			later.transfers = append(later.transfers, at.of.Transfer)
		default:
			now.transfers = append(now.transfers, at.of.Transfer)
		}
	}
	return errors.Join(r.abandon(ctx, now), r.abandon(ctx, later))
}

// abandon abandons transfers at the shard.
func (r *shardRun) abandon(ctx context.Context, g given) error {
	if len(g.transfers) == 0 {
		return nil
	}
	if g.late {
		if err := r.hear(ctx, statusRequest(g.transfers[0])); err != nil {
			r.p.c.settle(r.p, r.address, g)
			return err
		}
		time.Sleep(r.p.c.cfg.Drain)
	}
	for n, id := range g.transfers {
		if err := r.hear(ctx, abandonRequest(id)); err != nil {
			r.p.c.settle(r.p, r.address, given{g.transfers[n:], g.late})
			return err
		}
	}
	return nil
}

// hear makes a call of which it matters only that the shard hears it. An answer of any kind says so.
func (r *shardRun) hear(ctx context.Context, request []byte) error {
	if r.q == nil { // lost; of kept ones none is better than it was
		q, err := r.p.freshControl(ctx, r.address)
		if err != nil {
			return err
		}
		r.q = q
	}
	if err := r.call(ctx, request, new(any)); err != nil && !isRefusal(err) {
		return err
	}
	return nil
}

const (
	minSettle = 250 * time.Millisecond
	maxSettle = 15 * time.Second
)

// settle abandons transfers at a shard in the background.
func (c *Client) settle(p *peer, address string, g given) {
	c.retry(p, len(g.transfers), func() int {
		g.transfers = p.tell(address, g)
		return len(g.transfers)
	})
}

// retry tries in the background, with pauses that grow, until nothing of so many transfers is left, Config.Settle has
// passed or the Client is closed.
func (c *Client) retry(p *peer, left int, try func() (left int)) {
	end := time.Now().Add(c.cfg.Settle)
	c.bg.Go(func() {
		for wait := minSettle; time.Now().Before(end); wait = min(2*wait, maxSettle) {
			if c.pause(wait) != nil {
				return
			}
			if left = try(); left == 0 {
				return
			}
		}
		c.cfg.Logger.Warn("a consumer was not told of transfers that were given up", "consumer", p.address, "transfers", left)
	})
}

// pause waits; an error says that the Client was closed.
func (c *Client) pause(d time.Duration) error {
	select {
	case <-c.ctx.Done():
		return c.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// tell abandons transfers at a shard through a connection of its own, and returns those that the shard has not heard.
func (p *peer) tell(address string, g given) []string {
	q, err := p.freshControl(p.c.ctx, address)
	if err != nil {
		return g.transfers
	}
	defer q.close()
	if g.late && p.c.pause(p.c.cfg.Drain) != nil {
		return g.transfers
	}
	for n, id := range g.transfers {
		if err := p.call(p.c.ctx, q, abandonRequest(id), new(struct{})); err != nil && !isRefusal(err) {
			return g.transfers[n:]
		}
	}
	return nil
}

// Abandon has all shards of the consumer at address free what they hold for transfers, and refuse them from here on:
// those of a request that failed, or of a process that was killed. Nothing may be writing for them; late says that bytes
// of a writer that is gone may still come. What the shards cannot be told at once they are told in the background.
func (c *Client) Abandon(ctx context.Context, address string, transfers []string, late bool) error {
	p, g := c.peer(address), given{transfers, late}
	addresses, q, err := p.shards(ctx)
	if err != nil {
		// Which shards there are is asked anew with each attempt.
		c.settleAll(p, g)
		return fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	p.keep(p.address, q, nil)
	var all errgroup.Group
	for _, at := range addresses {
		all.Go(func() error {
			r := newShardRun(p, at, nil)
			defer r.end()
			return r.abandon(ctx, g)
		})
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	return nil
}

// settleAll abandons transfers at all shards of a consumer, in the background, once it says which it has.
func (c *Client) settleAll(p *peer, g given) {
	c.retry(p, len(g.transfers), func() int {
		addresses, q, err := p.shards(c.ctx)
		if err != nil {
			return len(g.transfers)
		}
		p.keep(p.address, q, nil)
		for _, at := range addresses {
			if left := p.tell(at, g); len(left) > 0 {
				c.settle(p, at, given{left, g.late})
			}
		}
		return 0
	})
}
