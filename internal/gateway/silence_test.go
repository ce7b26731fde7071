// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestSilence: calls are cut by a failed probe, once the latest sign of life is older than the limit.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilence(10 * time.Second)
		ctx, done := s.call(t.Context(), "a")
		other, otherDone := s.call(t.Context(), "b")
		defer otherDone()
		probeFails := func(after time.Duration, cut bool) {
			t.Helper()
			time.Sleep(after)
			s.unheard("a")
			if got := errors.Is(context.Cause(ctx), errSilent); got != cut {
				t.Errorf("cut %v, want %v", got, cut)
			}
		}
		probeFails(9*time.Second, false)
		s.alive("a") // an event of its answer: too busy for probes, and alive
		probeFails(9*time.Second, false)
		probeFails(time.Second, true)
		done()
		if other.Err() != nil {
			t.Error("the call to another worker was cut")
		}
		ctx, done = s.call(t.Context(), "a")
		probeFails(0, true) // it is still silent
		done()
		s.alive("a")
		ctx, done = s.call(t.Context(), "a")
		probeFails(9*time.Second, false)
		done()
		if n := len(s.lines["a"].calls); n != 0 {
			t.Errorf("%d calls are left", n)
		}
		s.limit = 0
		ctx, done = s.call(t.Context(), "a")
		defer done()
		probeFails(time.Hour, false)
	})
}

// TestBrokenBySilence: a cut call counts against its worker, not as something that this side wanted.
func TestBrokenBySilence(t *testing.T) {
	g := New(Config{Encoders: []string{"http://w"}, Registry: prometheus.NewRegistry()})
	g.fleet.state.Encoders[0] = testWorker
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSilent)
	err := g.broken(ctx, testWorker, ctx.Err())
	var broken *brokenError
	if !errors.As(err, &broken) || g.fleet.snapshot().Encoders[0].Up || errors.Is(err, context.Canceled) {
		t.Errorf("%v, up %v", err, g.fleet.snapshot().Encoders[0].Up)
	}
	// One call's silence ends the other calls of its attempt; their workers are not to blame.
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(err)
	g.fleet.state.Encoders[0].Up = true
	if got := g.broken(ctx, testWorker, ctx.Err()); got != err || !g.fleet.snapshot().Encoders[0].Up {
		t.Errorf("%v, up %v", got, g.fleet.snapshot().Encoders[0].Up)
	}
}
