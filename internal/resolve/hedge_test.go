// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// hedgeBench is a bench in which reads usually take 10 ms and items x and y are in the Store.
type hedgeBench struct {
	*bench
	x, y     Item
	encodes  atomic.Int32 // started
	finished atomic.Int32
	made     atomic.Int32  // encodes that were not cut short
	took     time.Duration // of an encode
	yTook    time.Duration // of the encode of y, if not 0
	stubborn bool          // encodes go on after their context
	err      error         // of an encode
}

func hedged(t *testing.T, f func(*hedgeBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, embedding.A1, func(c *Config) { c.Hedge, c.Cache = true, nil })
		h := &hedgeBench{bench: b, x: item("x", 3, 8), y: item("y", 3, 8), took: 50 * time.Millisecond}
		b.plant(h.x, h.x, 1)
		b.plant(h.y, h.y, 2)
		for range samples {
			b.r.Estimator().ObserveRead(2*512, 10*time.Millisecond)
			b.r.Estimator().ObserveRead(300, 10*time.Millisecond)
		}
		f(h)
	})
}

// resolve returns what x and y got and how long it took. An encode makes objects of value 7.
func (h *hedgeBench) resolve(ctx context.Context) ([]Result, time.Duration) {
	items, results := []Item{h.x, h.y}, make([]Result, 2)
	start := time.Now()
	h.r.ResolveOr(ctx, items, results, func(ctx context.Context, i int) (*arena.Buf, embedding.Meta, error) {
		h.encodes.Add(1)
		defer h.finished.Add(1)
		took := h.took
		if i == 1 && h.yTook != 0 {
			took = h.yTook
		}
		if h.stubborn {
			ctx = context.WithoutCancel(ctx)
		}
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return nil, embedding.Meta{}, ctx.Err()
		}
		h.made.Add(1)
		if h.err != nil {
			return nil, embedding.Meta{}, h.err
		}
		buf := h.object(items[i], 7)
		meta, _, err := embedding.A1.Open(buf.Bytes(), items[i].Key, items[i].Contract)
		return buf, meta, err
	})
	took := time.Since(start)
	for _, r := range results {
		if r.Buf != nil {
			h.Cleanup(r.Buf.Release)
		}
	}
	return results, took
}

func (h *hedgeBench) expect(src control.Source, x, y float32, encodes int32, wait time.Duration) {
	h.Helper()
	rs, took := h.resolve(h.Context())
	h.hit(rs[0], h.x, src, x)
	h.hit(rs[1], h.y, src, y)
	if n := h.encodes.Load(); n != encodes || took != wait {
		h.Errorf("%d encodes in %v, want %d in %v", n, took, encodes, wait)
	}
	h.r.Wait() // losers give back what they have; the arena's Close checks it
	if h.finished.Load() != encodes {
		h.Errorf("%d of %d encodes ended", h.finished.Load(), encodes)
	}
}

func (h *hedgeBench) delay(d time.Duration) { h.store.Set(testkit.Get, testkit.Fault{Delay: d}) }

func TestHedgeStaysOutOfTimelyReads(t *testing.T) {
	hedged(t, func(h *hedgeBench) {
		h.delay(9 * time.Millisecond)
		h.expect(control.SourceStore, 1, 2, 0, 9*time.Millisecond)
	})
}

// The encode starts when the read is late, after 10 ms, and wins.
func TestHedgeEncodeWins(t *testing.T) {
	hedged(t, func(h *hedgeBench) {
		h.delay(time.Second)
		h.expect(control.SourceEncoded, 7, 7, 2, 60*time.Millisecond)
		if got := testutil.ToFloat64(h.r.Metrics().hedgeWon); got != 2 {
			h.Errorf("%v hedges won, want 2", got)
		}
	})
}

func TestHedgeReadWins(t *testing.T) {
	hedged(t, func(h *hedgeBench) {
		h.delay(40 * time.Millisecond)
		h.expect(control.SourceStore, 1, 2, 2, 40*time.Millisecond)
		if got := testutil.ToFloat64(h.r.Metrics().hedged); got != 2 {
			h.Errorf("%v items hedged, want 2", got)
		}
	})
}

// When one side fails, the other decides; when both fail, the item is a miss like any other.
func TestHedgeFailures(t *testing.T) {
	hedged(t, func(h *hedgeBench) { // encodes fail at 11 ms, the read comes at 40
		h.took, h.err = time.Millisecond, errors.New("engine fault")
		h.delay(40 * time.Millisecond)
		h.expect(control.SourceStore, 1, 2, 2, 40*time.Millisecond)
	})
	hedged(t, func(h *hedgeBench) { // the read fails at 40 ms, the encodes come at 60
		h.store.Set(testkit.Get, testkit.Fault{Delay: 40 * time.Millisecond, Err: store.ErrRejected})
		h.expect(control.SourceEncoded, 7, 7, 2, 60*time.Millisecond)
	})
	for _, read := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
		hedged(t, func(h *hedgeBench) {
			h.err = errors.New("engine fault")
			h.store.Set(testkit.Get, testkit.Fault{Delay: read, Err: store.ErrRejected})
			rs, took := h.resolve(h.Context())
			h.miss(rs[0], Rejected)
			h.miss(rs[1], Rejected)
			if want := max(read, 60*time.Millisecond); took != want {
				h.Errorf("took %v, want %v", took, want)
			}
		})
	}
}

// One item of the read fails, the other is taken from it; the encode of the first goes on.
func TestHedgeDecidesPerItem(t *testing.T) {
	hedged(t, func(h *hedgeBench) {
		h.store.Set(testkit.Get, testkit.Fault{Delay: 40 * time.Millisecond, Err: store.ErrRejected,
			Keys: map[embedding.Key]bool{h.x.Key: true}})
		rs, took := h.resolve(h.Context())
		h.hit(rs[0], h.x, control.SourceEncoded, 7)
		h.hit(rs[1], h.y, control.SourceStore, 2)
		if took != 60*time.Millisecond {
			h.Errorf("took %v, want 60ms", took)
		}
		if n := h.made.Load(); n != 1 {
			h.Errorf("%d encodes ran to their end, want that of x only", n)
		}
	})
}

// A loser that does not listen gives back what it has all the same, while its call waits for another item
// and after its call has ended. The arena's Close checks it.
func TestHedgeStubbornLosers(t *testing.T) {
	hedged(t, func(h *hedgeBench) {
		h.stubborn, h.yTook = true, 45*time.Millisecond
		h.store.Set(testkit.Get, testkit.Fault{Delay: 40 * time.Millisecond, Err: store.ErrRejected,
			Keys: map[embedding.Key]bool{h.x.Key: true}})
		rs, _ := h.resolve(h.Context())
		h.hit(rs[0], h.x, control.SourceEncoded, 7)
		h.hit(rs[1], h.y, control.SourceStore, 2)
	})
	hedged(t, func(h *hedgeBench) {
		h.stubborn = true
		h.delay(40 * time.Millisecond)
		h.expect(control.SourceStore, 1, 2, 2, 40*time.Millisecond)
	})
}

// Reads that lose count, with the time they had: else a Store that has become slow would look as fast as
// ever. In the end slow is what is usual, and no longer late.
func TestHedgeLearnsFromLosers(t *testing.T) {
	hedged(t, func(h *hedgeBench) {
		h.delay(time.Second)
		for range 4 * samples {
			h.resolve(h.Context())
			h.r.Wait()
		}
		if n := h.made.Load(); n < 10 || n > 6*samples {
			h.Errorf("%d encodes of %d won, want some at first and none in the end", n, 8*samples)
		}
		if d, ok := h.r.Estimator().Read(300); !ok || d < 50*time.Millisecond {
			h.Errorf("a read is expected to take %v, want at least the 50 ms that those had", d)
		}
	})
}

// The Store's Timeout does not cut an encode short, the caller's end does both.
func TestHedgeAndDeadlines(t *testing.T) {
	hedged(t, func(h *hedgeBench) {
		h.took = 10 * time.Second
		h.store.Set(testkit.Get, testkit.Fault{Hold: make(chan struct{})})
		h.expect(control.SourceEncoded, 7, 7, 2, 10*time.Second+10*time.Millisecond)
	})
	hedged(t, func(h *hedgeBench) {
		h.took = time.Hour
		h.store.Set(testkit.Get, testkit.Fault{Hold: make(chan struct{})})
		ctx, cancel := context.WithTimeout(h.Context(), 30*time.Millisecond)
		defer cancel()
		rs, took := h.resolve(ctx)
		h.miss(rs[0], Timeout)
		if took != 30*time.Millisecond {
			h.Errorf("took %v, want 30ms", took)
		}
	})
}

func TestHedgeIsOffByDefault(t *testing.T) {
	hedged(t, func(h *hedgeBench) {
		h.r.cfg.Hedge = false
		h.delay(time.Second)
		h.expect(control.SourceStore, 1, 2, 0, time.Second)
	})
}
