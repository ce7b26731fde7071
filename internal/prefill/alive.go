// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"fmt"
	"sync"
	"time"
)

// hangs is how long a native call may take. It computes one step of at most a batch of positions, picks the tokens behind
// them, or reads a grammar.
const hangs = 2 * time.Minute

// Alive says why this worker must be started again: a call into the engine does not return.
func (p *Prefill) Alive() error {
	for _, since := range []time.Time{p.sched.Stats().Since, p.native.oldest()} {
		if !since.IsZero() && time.Since(since) > hangs {
			return fmt.Errorf("prefill: a call into the engine has not returned for %v", time.Since(since).Round(time.Second))
		}
	}
	return nil
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
