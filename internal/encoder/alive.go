// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"fmt"
	"sync/atomic"
	"time"
)

// hangs is how long a call into the engine may take: far more than the largest picture does.
const hangs = 5 * time.Minute

// call watches the one call into the engine. Its zero value has none.
type call struct{ since atomic.Pointer[time.Time] }

// begin notes a call, which end ends.
func (c *call) begin() (end func()) {
	now := time.Now()
	c.since.Store(&now)
	return func() { c.since.Store(nil) }
}

// Alive says why this worker must be started again: a call into the engine does not return. That there is much to
// do is no reason.
func (e *Encoder) Alive() error { return e.call.alive() }

func (c *call) alive() error {
	if since := c.since.Load(); since != nil && time.Since(*since) > hangs {
		return fmt.Errorf("encoder: a call into the engine has not returned for %v", time.Since(*since).Round(time.Second))
	}
	return nil
}
