// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"log/slog"
	"sync"
	"time"
)

// What is logged once at each turn of events.
const (
	msgAway  = "mooncake: the Store is away; encoding instead"
	msgHere  = "mooncake: the Store is back"
	msgDoubt = "mooncake: a transfer failed or was left; its memory is in quarantine and its key not trusted. Further ones are counted only"
	msgBack  = "mooncake: quarantined memory is back"
	msgStays = "mooncake: a mapping of the arena is not withdrawn yet"

	msgNoConnection = "mooncake: no connection; encoding instead until there is one"
	msgConnected    = "mooncake: connected"
)

// breaker refuses calls while the Store cannot serve: each would wait 4.4 s for an answer that says
// no. It opens on the first sign (a code, a heartbeat) and closes when a trial call went well, which
// the heart makes once a second.
type breaker struct {
	log *slog.Logger

	mu    sync.Mutex // guards the fields below
	cause error      // why it is open; nil is closed
	good  time.Time  // when it was closed last
	told  bool       // that it is open
	trips uint64
}

// calm is how long the Store has to be back for its next absence to be told of: a master that starts again
// comes and goes for a moment.
const calm = 10 * time.Second

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
		if b.told = time.Since(b.good) > calm; b.told {
			b.log.Warn(msgAway, "cause", cause)
		}
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
	if b.told {
		b.log.Info(msgHere)
	}
	b.cause, b.good = nil, time.Now()
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
