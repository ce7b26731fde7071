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
	// timed is used instead of run where somebody else takes the time; in microseconds.
	timed func() (float64, error)
	// check tidies up after each run, outside of the time; nil is nothing. When all, it verifies every
	// byte too; after each run that would leave caches and cores cold for the next, which is to be warm.
	check func(all bool) error
	us    []float64 // of the runs, in microseconds
	last  []float64 // of these, those of the round that runs
	p50s  []float64 // medians of the rounds
}

// p50 returns the median in microseconds.
func (w *way) p50() float64 { return Quantile(w.us, 0.5) }

// median returns the median of the rounds' medians in microseconds: a round that met a slow spell counts once.
func (w *way) median() float64 { return Quantile(w.p50s, 0.5) }

// once runs the way and returns what it took, in microseconds.
func (w *way) once() (float64, error) {
	if w.timed != nil {
		return w.timed()
	}
	start := time.Now()
	err := w.run()
	return float64(time.Since(start)) / float64(time.Microsecond), err
}

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
			if err := r.round(ctx, w); err != nil {
				return fmt.Errorf("bench: %s: %w", w.name, err)
			}
		}
	}
	return nil
}

// round runs one way.
func (r Rounds) round(ctx context.Context, w *way) error {
	w.last = w.last[:0]
	for i := range r.Warmup + r.Samples {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		us, err := w.once()
		if err == nil && w.check != nil {
			err = w.check(i == 0 || i == r.Warmup+r.Samples-1)
		}
		if err != nil {
			return err
		}
		if i >= r.Warmup {
			w.us, w.last = append(w.us, us), append(w.last, us)
		}
	}
	w.p50s = append(w.p50s, Quantile(w.last, 0.5))
	return nil
}
