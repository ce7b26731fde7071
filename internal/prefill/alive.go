// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"fmt"
	"sync"
	"time"

	"afterimage/internal/control"
)

// hangs is how long a native call may take. It computes one step of at most a batch of positions, picks the tokens behind
// them, or reads a grammar.
const hangs = 2 * time.Minute

// stalls is after how long one keeps requests away, so that they go to other workers meanwhile.
const stalls = hangs / 4

// Alive says why this worker must be started again: a call into the engine does not return.
func (p *Prefill) Alive() error {
	if took := p.longest(); took > hangs {
		return fmt.Errorf("prefill: a call into the engine has not returned for %v", took.Round(time.Second))
	}
	return nil
}

// Ready says why no requests should be sent here now, long before Alive gives the call up. It words the reason the same
// as long as it holds, so that it is told once.
func (p *Prefill) Ready() error {
	if p.longest() > stalls {
		return fmt.Errorf("%s for more than %v", control.Stalled, stalls)
	}
	return nil
}

// longest returns how long the native call has been under way that has taken longest; 0 without any.
func (p *Prefill) longest() (took time.Duration) {
	for _, since := range []time.Time{p.sched.Stats().Since, p.native.oldest()} {
		if !since.IsZero() {
			took = max(took, time.Since(since))
		}
	}
	return took
}

// calls watches calls that run side by side. Its zero value has none.
type calls struct {
	mu    sync.Mutex // guards what follows
	begun map[int]time.Time
	n     int
}

// begin notes a call, which end ends.
func (c *calls) begin() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun == nil {
		c.begun = map[int]time.Time{}
	}
	c.n++
	id := c.n
	c.begun[id] = time.Now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.begun, id)
	}
}

// oldest returns when the call that has taken longest began; zero without any.
func (c *calls) oldest() (at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.begun {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}
