// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"errors"
	"time"
)

// errSilent ends the calls of an instance that is evicted because it answers no probe and has sent nothing
// either. A frozen process keeps its connections open, so nothing else would.
var errSilent = errors.New("gave no sign of life")

// call is one call in flight.
type call struct {
	reg    *Registry
	e      *entry
	cancel context.CancelCauseFunc
	heard  time.Time // of the latest sign of life
}

// outcome is what a call says of the instance.
type outcome int

const (
	worked outcome = iota
	broke          // it did not answer to the end
	failed         // it said that it failed
	unsaid         // the call was ended from this side
)

// begin notes a call to e, which ends when its context does or when e is silent for too long.
func (r *Registry) begin(ctx context.Context, e *entry) (context.Context, *call) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{reg: r, e: e, cancel: cancel, heard: time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.calls[c] = struct{}{}
	return ctx, c
}

// alive notes a sign of life.
func (c *call) alive() {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	c.heard = time.Now()
}

// end notes how the call ended. An instance whose calls fail in a row is left alone for longer each time.
func (c *call) end(o outcome) {
	c.cancel(nil)
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	delete(c.e.calls, c)
	switch o {
	case worked:
		c.e.callFails, c.e.leaves, c.e.leftUntil = 0, 0, time.Time{}
	case broke, failed:
		if c.e.callFails++; o == broke || c.e.callFails >= maxFailures {
			wait := c.reg.cfg.Backoff << min(c.e.leaves, maxBackoffs)
			c.e.leaves++
			c.e.leftUntil = time.Now().Add(wait)
		}
	}
}

const (
	// maxBackoffs is how often the time for which an instance is left alone doubles.
	maxBackoffs = 4
	// maxFailures is how many answers in a row may be failures before an instance is left alone: one may be
	// the fault of its request.
	maxFailures = 5
)

// cutSilent ends the calls that have heard nothing since the probes began to fail. The registry is locked.
func (e *entry) cutSilent() {
	for c := range e.calls {
		if c.heard.Before(e.silentFrom) {
			c.cancel(errSilent)
		}
	}
}
