// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"fmt"
	"sync/atomic"
	"time"

	"afterimage/internal/control"
)

const (
	// hangs is how long a call into the engine may take: far more than the largest picture does.
	hangs = 5 * time.Minute
	// stalls is after how long one keeps requests away, unless pictures have been known to take nearly as long. P/Ds wait
	// for an embedding for 30 s by default; what they then ask for anew is to go to another Encoder.
	stalls = 20 * time.Second
	// slower is how many times the slowest call so far one may take.
	slower = 3
)

// call watches the one call into the engine. Its zero value has none.
type call struct {
	since   atomic.Pointer[time.Time]
	slowest atomic.Int64 // nanoseconds of a call that has ended
}

// begin notes a call, which end ends.
func (c *call) begin() (end func()) {
	now := time.Now()
	c.since.Store(&now)
	return func() {
		c.since.Store(nil)
		if took := int64(time.Since(now)); took > c.slowest.Load() { // there is one call at a time
			c.slowest.Store(took)
		}
	}
}

// Alive says why this worker must be started again: a call into the engine does not return. That there is much to
// do is no reason.
func (e *Encoder) Alive() error { return e.call.alive() }

// Ready says why no requests should be sent here now, long before Alive gives the call up.
func (e *Encoder) Ready() error { return e.call.ready() }

func (c *call) alive() error {
	if took := c.under(); took > hangs {
		return fmt.Errorf("encoder: a call into the engine has not returned for %v", took.Round(time.Second))
	}
	return nil
}

// ready words the reason the same as long as it holds, so that it is told once.
func (c *call) ready() error {
	limit := min(max(stalls, slower*time.Duration(c.slowest.Load())), hangs)
	if c.under() > limit {
		return fmt.Errorf("%s for more than %v", control.Stalled, limit)
	}
	return nil
}

// under returns how long the call has been under way; 0 without any.
func (c *call) under() time.Duration {
	if since := c.since.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
}
