// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// -900 and -901 open the breaker: further calls do not reach the server, until a trial went well.
func TestBreaker(t *testing.T) {
	for _, bad := range []code{codeRPCFailed, codeRPCTimeout} {
		f, c, read := startWithFake(t)
		f.mu.Lock()
		f.exist = func(keys []string) []int64 { return slices.Repeat([]int64{int64(bad)}, len(keys)) }
		f.mu.Unlock()
		f.set(func(uint32, []string, [][]byte) []int64 { return []int64{int64(bad)} })
		if g := read("k", 100); !errors.Is(g.Err, store.ErrUnavailable) {
			t.Errorf("%v: %v, want ErrUnavailable", bad, g.Err)
		}
		before := f.count(fnGet)
		for range 10 {
			if g := read("k", 100); !errors.Is(g.Err, store.ErrUnavailable) {
				t.Errorf("open breaker: %v, want ErrUnavailable", g.Err)
			}
		}
		if n := f.count(fnGet) - before; n != 0 {
			t.Errorf("%d calls passed an open breaker", n)
		}
		trials := f.count(fnExist)
		eventually(t, "trials are made, and fail", func() bool { return f.count(fnExist) > trials+1 })
		if !c.Stats().BreakerOpen {
			t.Errorf("%v: heartbeats alone close the breaker", bad)
		}
		if n := c.Stats().Quarantined; n != 0 {
			t.Errorf("%d ranges in quarantine: only calls to the master fail with %v", n, bad)
		}
		f.mu.Lock()
		f.exist = nil
		f.mu.Unlock()
		f.set(func(uint32, []string, [][]byte) []int64 { return []int64{int64(codeNotFound)} })
		eventually(t, "the breaker closes", func() bool { return errors.Is(read("k", 100).Err, store.ErrMiss) })
	}
}

// Questions and removals open it, too; each of a client of its own, since trials close it.
func TestBreakerOfOtherCalls(t *testing.T) {
	for _, bad := range []code{codeRPCFailed, codeRPCTimeout} {
		for name, call := range map[string]func(*Client) error{
			"Exists": func(c *Client) error { _, err := exists(t, c, "k"); return err },
			"Remove": func(c *Client) error { return c.Remove(t.Context(), []embedding.Key{"k"}) },
		} {
			f, c, _ := startWithFake(t)
			f.mu.Lock()
			f.removed = bad
			f.exist = func(keys []string) []int64 { return slices.Repeat([]int64{int64(bad)}, len(keys)) }
			f.mu.Unlock()
			if err := call(c); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s that ends with %v: %v, want ErrUnavailable", name, bad, err)
			}
			if !c.Stats().BreakerOpen {
				t.Errorf("%s that ends with %v leaves the breaker closed", name, bad)
			}
		}
	}
}

// A call that began before the Store was back, and fails after it, opens nothing.
func TestLateFailureOpensNothing(t *testing.T) {
	var log logbook
	b := breaker{away: &outage{log: slog.New(&log)}}
	began, away := time.Now(), errors.New("away")
	b.trip(began, away)
	b.reset()
	b.trip(began, away)
	if err := b.open(); err != nil || b.tripped() != 1 {
		t.Errorf("%v after %d trips, want a closed breaker and one", err, b.tripped())
	}
	b.trip(time.Now(), away) // so soon, it is no news
	if b.open() == nil || b.tripped() != 2 {
		t.Error("a failure of a later call does not open it")
	}
	b.reset()
	log.said(t, map[string]int{msgAway: 1, msgHere: 1})
}
