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
// meets all of them, Samples runs each time after one that does not count.
type Rounds struct{ Rounds, Samples int }

// DefaultRounds are those that the targets are stated for.
func DefaultRounds() Rounds { return Rounds{Rounds: 3, Samples: 30} }

// measure runs all ways.
func (r Rounds) measure(ctx context.Context, ways ...*way) error {
	for range r.Rounds {
		for _, w := range ways {
			for i := range r.Samples + 1 {
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				start := time.Now()
				err := w.run()
				took := time.Since(start)
				if err == nil && w.check != nil {
					err = w.check(i == 0 || i == r.Samples)
				}
				if err != nil {
					return fmt.Errorf("bench: %s: %w", w.name, err)
				}
				if i > 0 {
					w.us = append(w.us, float64(took)/float64(time.Microsecond))
				}
			}
		}
	}
	return nil
}
