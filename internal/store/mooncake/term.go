// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"fmt"
	"time"
)

// term is when the calls that begin within a while have to end. They share it, and its timer: a timer for each call
// takes 3 us, of some 100 that a call takes.
type term struct {
	ctx    context.Context // ends with the client, or when the time is up
	cancel context.CancelFunc
	until  time.Time // calls that begin later have another one
}

// termShare is the part of Config.CallTimeout by which a call may take longer.
const termShare = 16

// bound returns a context for one call: it ends with that of the caller, after Config.CallTimeout or a little later,
// or with c.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	t := c.currentTerm()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func (c *Client) currentTerm() *term {
	now, t := time.Now(), c.term.Load()
	if t != nil && now.Before(t.until) {
		return t
	}
	more := c.cfg.CallTimeout / termShare
	next := &term{until: now.Add(more)}
	next.ctx, next.cancel = timeout(c.ctx, c.cfg.CallTimeout+more)
	if !c.term.CompareAndSwap(t, next) {
		next.cancel()
		return c.term.Load() // made a moment ago
	}
	return next
}

// timeout bounds a call by its ctx and d.
func timeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer in %v: %w", d, context.DeadlineExceeded))
}
