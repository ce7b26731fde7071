// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Calls that nobody bounds end by themselves: a question is given up, a transfer leaves its memory in quarantine
// until its answer comes after all.
func TestCallTimeout(t *testing.T) {
	f := startFake(t)
	a := newArena(t, 1<<20)
	c := open(t, Config{Addr: f.addr, CallTimeout: 50 * time.Millisecond}, a)
	release := make(chan struct{})
	f.mu.Lock()
	f.exist = func(keys []string) []int64 {
		<-release
		return make([]int64, len(keys))
	}
	f.mu.Unlock()
	f.set(func(_ uint32, keys []string, _ [][]byte) []int64 {
		<-release
		return make([]int64, len(keys))
	})
	if _, err := c.Exists(context.Background(), []embedding.Key{"k"}); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Exists: %v, want ErrUnavailable for the deadline", err)
	}
	if err := put(t, c, a, "k", 100, 1); !errors.Is(err, store.ErrUnconfirmed) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put: %v, want ErrUnconfirmed for the deadline", err)
	}
	if n := c.Stats().QuarantineRanges; n != 1 {
		t.Errorf("%d ranges in quarantine, want 1", n)
	}
	close(release)
	idle(t, a)
}

// Calls have the time that they may take at least, and little more, whichever term they share.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{cfg: Config{CallTimeout: 16 * time.Second}}
		c.ctx, c.stop = context.WithCancelCause(t.Context())
		shared := 0
		for range 100 {
			before := c.term.Load()
			_, cancel := c.bound(t.Context())
			cancel()
			now := c.term.Load()
			if now == before {
				shared++
			}
			end, _ := now.ctx.Deadline()
			if left := time.Until(end); left < c.cfg.CallTimeout || left > c.cfg.CallTimeout*17/16 {
				t.Errorf("a call has %v, want %v or a little more", left, c.cfg.CallTimeout)
			}
			time.Sleep(300 * time.Millisecond)
		}
		if shared < 60 {
			t.Errorf("%d of 100 calls shared the term of the one before", shared)
		}
		ctx, cancel := c.bound(t.Context())
		defer cancel()
		start := time.Now()
		<-ctx.Done()
		if d := time.Since(start); d < 16*time.Second || d > 17*time.Second || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("a call that nobody bounds ended after %v: %v", d, context.Cause(ctx))
		}
		gone := errors.New("gone")
		ctx, cancel = c.bound(t.Context())
		defer cancel()
		c.stop(gone)
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, gone) {
			t.Errorf("the client ended, and a call with %v", err)
		}
	})
}
