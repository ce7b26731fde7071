// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"sync"
	"time"
)

// breaker refuses calls while the Store cannot serve: each would wait 4.4 s for an answer that says
// no. It opens on the first sign (a code, a heartbeat) and closes when a trial call went well, which
// the heart makes once a second.
type breaker struct {
	away *outage

	mu    sync.Mutex // guards the fields below; taken before that of away
	cause error      // why it is open; nil is closed
	good  time.Time  // when it was closed last
	trips uint64
}

// trip opens it, for a call that began then. One that began before the breaker closed says nothing new: with
// a dead master it takes seconds to fail.
func (b *breaker) trip(began time.Time, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil && began.Before(b.good) {
		return
	}
	if b.cause == nil {
		b.trips++
		b.away.begin(refusing, msgAway, "cause", cause)
	}
	b.cause = cause
}

// reset closes it.
func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil {
		return
	}
	b.cause, b.good = nil, time.Now()
	b.away.over(refusing)
}

// open returns why calls are refused, or nil.
func (b *breaker) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cause
}

func (b *breaker) tripped() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trips
}
