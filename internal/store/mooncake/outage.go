// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// absence is a reason for which the Store is away. Several may hold at once.
type absence uint8

const (
	unconnected absence = 1 << iota // no connection to mooncake_client
	refusing                        // the breaker is open
)

// What an outage is told by: one line when it begins, one when it ends.
const (
	msgAway = "mooncake: the Store is away; encoding instead"
	msgHere = "mooncake: the Store is back"

	msgNoConnection = "mooncake: no connection; encoding instead until there is one" // not yet
	msgConnected    = "mooncake: connected"
)

// calm is how long the Store has to be back for its next absence to be told of at once: a master that starts again
// comes and goes for a moment. An absence that lasts as long is told of after all.
const calm = 10 * time.Second

// outage tells of the time in which the Store is away, whatever the reasons, and of what follows from it: everything
// else that happens meanwhile, or right after, has the level debug.
type outage struct {
	log   *slog.Logger
	quiet time.Duration // after an outage in which failures are its consequences

	mu    sync.Mutex // guards the fields below
	why   absence    // 0: the Store is there
	since time.Time
	ended time.Time // the last one; zero before
	end   string    // what its end is told by; empty while it is not told
	args  []any     // of the line that was held back
}

// begin notes a reason, for which msg stands.
func (o *outage) begin(why absence, msg string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := o.why == 0
	o.why |= why
	if !first {
		o.log.Debug(msg, args...)
		return
	}
	o.since, o.args = time.Now(), args
	if why == refusing && o.since.Sub(o.ended) <= calm {
		o.log.Debug(msg, args...)
		return
	}
	o.tellLocked(msg)
}

func (o *outage) tellLocked(msg string) {
	o.log.Warn(msg, o.args...)
	if o.end = msgHere; msg == msgNoConnection {
		o.end = msgConnected
	}
}

// over notes that a reason holds no longer.
func (o *outage) over(why absence, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why&why == 0 {
		return
	}
	if o.why &^= why; o.why != 0 {
		return
	}
	level, msg := slog.LevelInfo, o.end
	if msg == "" {
		level, msg = slog.LevelDebug, msgHere
	}
	o.ended = time.Now()
	o.log.Log(context.Background(), level, msg, append(args, "after", o.ended.Sub(o.since).Round(time.Millisecond))...)
	o.end, o.args = "", nil
}

// look tells of an outage that was held back and goes on. The heart calls it about once a second.
func (o *outage) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why != 0 && o.end == "" && time.Since(o.since) > calm {
		o.tellLocked(msgAway)
	}
}

// follows says whether what fails at this moment follows from an outage.
func (o *outage) follows() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.why != 0 || !o.ended.IsZero() && time.Since(o.ended) <= max(calm, o.quiet)
}

// tell logs msg as a warning, unless it follows from an outage.
func (o *outage) tell(msg string, args ...any) {
	level := slog.LevelWarn
	if o.follows() {
		level = slog.LevelDebug
	}
	o.log.Log(context.Background(), level, msg, args...)
}
