// SPDX-License-Identifier: Apache-2.0

// Package device is a modelled accelerator: engines that take the time a device would take and
// produce seeded values instead of computing them. It lets roles, transports and Stores run with real
// bytes where no model or no accelerator is at hand. Whatever it shows says "modelled".
//
// A device works serially. Each piece of work ends at an absolute deadline, the end of the work before
// it plus its own time, so that late wake-ups never add up.
package device

import (
	"context"
	"sync"
	"time"
)

// Clock is the time of one device: what it has been given to do, one piece after the other.
type Clock struct {
	mu   sync.Mutex // guards free
	free time.Time  // when the device has done all that it was given
}

// Work gives the device d of work and waits until that is done, or until ctx ends; work that was given
// stays given.
func (c *Clock) Work(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	if now := time.Now(); c.free.Before(now) {
		c.free = now
	}
	c.free = c.free.Add(d)
	end := c.free
	c.mu.Unlock()
	wait := time.Until(end)
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
