// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// failLimit is how many calls in a row may fail on connections that opened well. A Store that is not
// there at all opens the breaker at once.
const failLimit = 3

// breaker keeps a Store that is away from costing its callers time. While it is open, calls fail at
// once; after a pause one call at a time may try, and pauses double up to max.
//
// The pause starts when an attempt fails, and nothing runs in the background: a client that nobody
// calls does nothing.
type breaker struct {
	min, max time.Duration

	mu      sync.Mutex
	fails   int // in a row
	pause   time.Duration
	until   time.Time // open until then; zero is closed
	probing bool      // one call is trying
	cause   error
}

// allow reports whether a call may open a connection. If so, trip, fail, succeed or release must
// follow.
func (b *breaker) allow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return nil
	}
	if b.probing || time.Now().Before(b.until) {
		return fmt.Errorf("not tried again yet: %w", b.cause)
	}
	b.probing = true
	return nil
}

// trip opens the breaker: nobody is at the socket.
func (b *breaker) trip(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tripLocked(cause)
}

func (b *breaker) tripLocked(cause error) {
	b.probing = false
	b.pause = min(max(2*b.pause, b.min), b.max)
	// Up to a quarter less, so that the workers of a host do not all come back at once.
	jitter := time.Duration(rand.Int64N(int64(b.pause)/4 + 1))
	b.until = time.Now().Add(b.pause - jitter)
	b.cause = cause
}

// fail counts a call that found the Store but got no good answer.
func (b *breaker) fail(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails++; b.fails >= failLimit || b.probing {
		b.tripLocked(cause)
	}
}

// release ends an attempt that says nothing of the Store: its caller gave up.
func (b *breaker) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// succeed closes the breaker.
func (b *breaker) succeed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails, b.pause, b.until, b.probing, b.cause = 0, 0, time.Time{}, false, nil
}

// open reports whether calls fail at once.
func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.until.IsZero()
}
