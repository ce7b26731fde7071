// SPDX-License-Identifier: Apache-2.0

// Package device is a modelled accelerator: engines that take the time a device would take and
// produce seeded values instead of computing them. It lets roles, transports and Stores run with real
// bytes where no model or no accelerator is at hand. Whatever it shows says "modelled".
//
// A device works serially. Each piece of work ends at an absolute deadline, the end of the work before
// it plus its own time, so that late wake-ups never add up. An Encoder and a text model can share one
// device, even from two processes: that is what a monolithic server does.
package device

import (
	"context"
	"sync"
	"time"
)

// Clock is the time of one device: what it has been given to do, one piece after the other. All methods
// may be called from any goroutine.
type Clock struct {
	mu     sync.Mutex // guards the fields below
	plan   plan
	busy   time.Duration // work that this Clock was given; what others gave a shared device is theirs
	shared *sharedPlan   // where the plan lies if the device has other users; nil otherwise
	start  time.Time
}

// plan is what a device will do, in nanoseconds of the clock.
type plan struct {
	free int64 // when the device has done all that it was given
	// step is when the decode step that ends at free begins; noStep if the last piece is not one.
	step int64
}

const noStep = -1

// NewClock returns the clock of a device that nothing has been given to do. With a path, all Clocks of
// that path on this host are those of one device; the file is made if it is missing.
func NewClock(path string) (*Clock, error) {
	c := &Clock{start: time.Now(), plan: plan{step: noStep}}
	if path == "" {
		return c, nil
	}
	var err error
	c.shared, err = openShared(path)
	return c, err
}

// Close gives up a shared device.
func (c *Clock) Close() error {
	if c.shared == nil {
		return nil
	}
	return c.shared.close()
}

// now is the time of the clock.
func (c *Clock) now() int64 {
	if c.shared != nil {
		return hostNanoseconds()
	}
	return int64(time.Since(c.start))
}

// change runs f on the plan, alone.
func (c *Clock) change(f func(p *plan, now int64)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == nil {
		f(&c.plan, c.now())
		return nil
	}
	return c.shared.change(func(p *plan) { f(p, c.now()) })
}

// Give hands the device d of work and returns when, on the clock, that will be done.
func (c *Clock) Give(d time.Duration) (end int64, err error) { return c.give(c.now(), d) }

// give hands the device d of work that could have begun at a time of the clock, which may be past: who wakes up
// late for it loses nothing.
func (c *Clock) give(after int64, d time.Duration) (end int64, err error) {
	err = c.change(func(p *plan, _ int64) {
		p.free = max(p.free, after) + int64(d)
		p.step = noStep
		c.busy += d
		end = p.free
	})
	return end, err
}

// Step joins the device's next decode step, which takes d however many sequences are in it. after is the
// end of the sequence's own last piece of work: a step that begins then or later and is not over is the
// one to join, so that sequences that wake up at slightly different times stay together.
func (c *Clock) Step(after int64, d time.Duration) (end int64, err error) {
	err = c.change(func(p *plan, now int64) {
		if p.step != noStep && p.step >= after && now < p.free {
			end = p.free
			return
		}
		// A wake-up that is late by less than a step costs nothing: the step has begun without it.
		begin := after
		if now-after >= int64(d) {
			begin = now
		}
		p.step = max(p.free, begin)
		p.free = p.step + int64(d)
		c.busy += d
		end = p.free
	})
	return end, err
}

// Busy returns the work that was given through this Clock.
func (c *Clock) Busy() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy
}

// Await waits for a time of the clock, or until ctx ends. Work that was given stays given.
func (c *Clock) Await(ctx context.Context, end int64) error {
	wait := time.Duration(end - c.now())
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

// Work gives the device d of work and waits until that is done.
func (c *Clock) Work(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	end, err := c.Give(d)
	if err != nil {
		return err
	}
	return c.Await(ctx, end)
}
