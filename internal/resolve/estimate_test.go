// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"testing"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

func TestEstimates(t *testing.T) {
	e := NewEstimator()
	expect := func(n int64, want time.Duration, known bool) {
		t.Helper()
		if got, ok := e.Read(n); got != want || ok != known {
			t.Errorf("Read(%d) = %v, %v; want %v, %v", n, got, ok, want, known)
		}
	}
	expect(1000, 0, false)
	expect(0, 0, false)
	for range minSamples - 1 {
		e.ObserveRead(1000, 10*time.Millisecond)
	}
	expect(1000, 0, false)
	e.ObserveRead(1000, 14*time.Millisecond)
	expect(1000, 11*time.Millisecond, true)
	expect(600, 11*time.Millisecond, true)   // the same size, nearly
	expect(4000, 44*time.Millisecond, true)  // in proportion
	expect(100, 1100*time.Microsecond, true) // and to below
	if _, ok := e.Encode(1000); ok {
		t.Error("reads say nothing about encodes")
	}
	for range samples { // the past is forgotten
		e.ObserveRead(1000, time.Millisecond)
	}
	expect(1000, time.Millisecond, true)
	e.ObserveRead(-1, time.Hour)
	e.ObserveRead(1000, -time.Hour)
	expect(1000, time.Millisecond, true)
}

func TestLate(t *testing.T) {
	e := NewEstimator()
	for i := range 20 {
		if _, ok := e.late(1000); ok != (i >= minSamples) {
			t.Errorf("after %d reads: known %v", i, ok)
		}
		e.ObserveRead(1000, time.Duration(i+1)*time.Millisecond)
	}
	if got, _ := e.late(1000); got != 19*time.Millisecond {
		t.Errorf("late after %v, want 19ms: the 95th of a hundred of 1..20 ms", got)
	}
	if _, ok := e.late(1 << 20); ok {
		t.Error("reads of another size say nothing about what is late")
	}
}

// A read that is expected to lose is not made, but now and then, so that a Store that has become fast is
// noticed.
func TestReadOrRecompute(t *testing.T) {
	b := newBench(t, embedding.A1, func(c *Config) { c.ReadOrRecompute, c.Cache = true, nil })
	x := item("x", 3, 8)
	b.plant(x, x, 1)
	e := b.r.Estimator()
	first := b.resolve(x)[0]
	b.hit(first, x, control.SourceStore, 1) // nothing is known yet
	for range samples {
		e.ObserveRead(int64(first.Buf.Len()), 100*time.Millisecond)
		e.ObserveEncode(int64(x.Contract.PayloadBytes()), 10*time.Millisecond)
	}
	skips, reads := 0, 0
	for range 4 * probe {
		if r := b.resolve(x)[0]; r.Reason == Recompute {
			skips++
		} else if r.Buf != nil {
			reads++
		}
	}
	if reads < 2 || skips < 3*probe-1 {
		t.Errorf("%d reads, %d left out; want a few reads only", reads, skips)
	}
	b.counted("miss", Recompute, float64(skips))
	for range samples {
		e.ObserveEncode(int64(x.Contract.PayloadBytes()), time.Minute)
	}
	b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
}

func TestReadOrRecomputeIsOffByDefault(t *testing.T) {
	b := newBench(t, embedding.A1, func(c *Config) { c.Cache = nil })
	x := item("x", 3, 8)
	b.plant(x, x, 1)
	for range samples {
		b.r.Estimator().ObserveRead(300, time.Hour)
		b.r.Estimator().ObserveEncode(int64(x.Contract.PayloadBytes()), time.Microsecond)
	}
	for range 2 * probe {
		b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
	}
}
