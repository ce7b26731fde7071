// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// encode returns a function that takes 100 ms, counts its runs, and gives n or what fail says.
func encode(runs *atomic.Int32, fail func(run int32) error) func(context.Context) (int32, error) {
	return func(ctx context.Context) (int32, error) {
		run := runs.Add(1)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if fail != nil {
			if err := fail(run); err != nil {
				return 0, err
			}
		}
		return run, nil
	}
}

// caller starts Do after a delay and tells how it ended and when.
type caller struct {
	delay  time.Duration
	cancel time.Duration // 0: never

	v    int32
	led  bool
	err  error
	took time.Duration
}

func (c *caller) call(f *Flight[int32], fn func(context.Context) (int32, error)) {
	time.Sleep(c.delay)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if c.cancel > 0 {
		defer time.AfterFunc(c.cancel, stop).Stop()
	}
	start := time.Now()
	c.v, c.led, c.err = f.Do(ctx, "k", fn)
	c.took = time.Since(start)
}

func run(t *testing.T, fn func(context.Context) (int32, error), cs ...*caller) {
	t.Helper()
	var f Flight[int32]
	var wg sync.WaitGroup
	for i, c := range cs {
		c.delay += time.Duration(i) * time.Millisecond // in order
		wg.Go(func() { c.call(&f, fn) })
	}
	wg.Wait()
	if len(f.lines) != 0 {
		t.Errorf("%d lines left", len(f.lines))
	}
}

func TestFlightIsOneEncode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		a, b, c := &caller{}, &caller{}, &caller{}
		run(t, encode(&runs, nil), a, b, c)
		for i, x := range []*caller{a, b, c} {
			if x.v != 1 || x.err != nil || x.led != (i == 0) {
				t.Errorf("caller %d: %+v", i, x)
			}
		}
		if n := runs.Load(); n != 1 {
			t.Errorf("%d encodes, want 1", n)
		}
	})
}

// Case T10: the first caller's cancel is its own affair; the others get their result from the next in
// line.
func TestFlightLeaderCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		a, b, c := &caller{cancel: 10 * time.Millisecond}, &caller{}, &caller{}
		run(t, encode(&runs, nil), a, b, c)
		if !errors.Is(a.err, context.Canceled) || a.took != 10*time.Millisecond {
			t.Errorf("cancelled leader: %+v", a)
		}
		if b.err != nil || !b.led || c.err != nil || c.led || b.v != 2 || c.v != 2 {
			t.Errorf("others: %+v %+v", b, c)
		}
		if n := runs.Load(); n != 2 {
			t.Errorf("%d encodes, want the cancelled one and one more", n)
		}
	})
}

// Case T10: a follower that is cancelled returns at once and disturbs nobody.
func TestFlightFollowerCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		a, b, c := &caller{}, &caller{cancel: 10 * time.Millisecond}, &caller{}
		run(t, encode(&runs, nil), a, b, c)
		if !errors.Is(b.err, context.Canceled) || b.took != 10*time.Millisecond {
			t.Errorf("cancelled follower: %+v", b)
		}
		if a.err != nil || c.err != nil || runs.Load() != 1 {
			t.Errorf("others: %+v %+v, %d encodes", a, c, runs.Load())
		}
	})
}

// Case T10: after an error one retry runs, not one of each follower.
func TestFlightLeaderFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		broken := errors.New("broken")
		a, b, c, d := &caller{}, &caller{}, &caller{}, &caller{}
		run(t, encode(&runs, func(run int32) error {
			if run == 1 {
				return broken
			}
			return nil
		}), a, b, c, d)
		if a.err != broken || b.err != nil || c.err != nil || d.err != nil || runs.Load() != 2 {
			t.Errorf("%+v %+v %+v %+v, %d encodes", a, b, c, d, runs.Load())
		}

		runs.Store(0)
		a, b, c, d = &caller{}, &caller{}, &caller{}, &caller{}
		run(t, encode(&runs, func(int32) error { return broken }), a, b, c, d)
		for _, x := range []*caller{a, b, c, d} {
			if x.err != broken {
				t.Errorf("caller of what always fails: %+v", x)
			}
		}
		if n := runs.Load(); n != 2 {
			t.Errorf("%d encodes of what always fails, want 2", n)
		}
	})
}

func TestFlightAllCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		cs := []*caller{{cancel: 10 * time.Millisecond}, {cancel: 20 * time.Millisecond}, {cancel: 5 * time.Millisecond}}
		run(t, encode(&runs, nil), cs...)
		for _, c := range cs {
			if !errors.Is(c.err, context.Canceled) || c.took != c.cancel {
				t.Errorf("%+v", c)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var f Flight[int32]
		if _, _, err := f.Do(ctx, "k", encode(&runs, nil)); !errors.Is(err, context.Canceled) || runs.Load() != 2 {
			t.Errorf("ended context: %v, %d encodes", err, runs.Load())
		}
	})
}

func TestFlightPanicStrandsNoOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		fn := encode(&runs, func(run int32) error {
			if run == 1 {
				panic("encoder bug")
			}
			return nil
		})
		var f Flight[int32]
		var wg sync.WaitGroup
		var recovered any
		wg.Go(func() {
			defer func() { recovered = recover() }()
			f.Do(t.Context(), "k", fn)
		})
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				if v, _, err := f.Do(t.Context(), "k", fn); v != 2 || err != nil {
					t.Errorf("follower of a panic: %d, %v", v, err)
				}
			})
		}
		wg.Wait()
		if recovered != "encoder bug" {
			t.Errorf("the leader's caller saw %v, want its own panic", recovered)
		}
	})
}

// Every caller that gets a result has a share of it, whoever is cancelled meanwhile.
func TestFlightShares(t *testing.T) {
	var refs atomic.Int32
	f := Flight[*atomic.Int32]{Share: func(r *atomic.Int32) *atomic.Int32 { r.Add(1); return r }}
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				go cancel()
			}
			r, _, err := f.Do(ctx, "k", func(ctx context.Context) (*atomic.Int32, error) {
				refs.Add(1)
				return &refs, nil
			})
			if err == nil {
				r.Add(-1)
			}
		})
	}
	wg.Wait()
	if n := refs.Load(); n != 0 {
		t.Errorf("%d references left", n)
	}
}
