// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"time"
)

// way is one of several ways to do the same thing, measured in turn.
type way struct {
	name string
	run  func() error // what is timed
	// check tidies up after each run, outside of the time; nil is nothing. When all, it verifies every
	// byte too; after each run that would leave caches and cores cold for the next, which is to be warm.
	check func(all bool) error
	us    []float64 // of the runs, in microseconds
}

// p50 returns the median in microseconds.
func (w *way) p50() float64 { return Quantile(w.us, 0.5) }

// Rounds says how often ways are measured: Rounds times in turn, so that a slow spell of the machine
// meets all of them, Samples runs each time after Warmup ones that do not count.
type Rounds struct{ Rounds, Warmup, Samples int }

// DefaultRounds are those that the targets are stated for.
// Ten runs do not count: until then caches, and how long an idle core waits before it sleeps, are those of
// the way before.
func DefaultRounds() Rounds { return Rounds{Rounds: 3, Warmup: 10, Samples: 30} }

// measure runs all ways.
func (r Rounds) measure(ctx context.Context, ways ...*way) error {
	for range r.Rounds {
		for _, w := range ways {
			for i := range r.Warmup + r.Samples {
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				start := time.Now()
				err := w.run()
				took := time.Since(start)
				if err == nil && w.check != nil {
					err = w.check(i == 0 || i == r.Warmup+r.Samples-1)
				}
				if err != nil {
					return fmt.Errorf("bench: %s: %w", w.name, err)
				}
				if i >= r.Warmup {
					w.us = append(w.us, float64(took)/float64(time.Microsecond))
				}
			}
		}
	}
	return nil
}
