// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// All tests of this file run against real servers, and break them.

func key(i int) embedding.Key { return embedding.Key(fmt.Sprintf("faults@id:%d", i)) }

// idle waits until no range of a is in use: everything in doubt came back.
func idle(t *testing.T, a *arena.Arena) {
	t.Helper()
	eventually(t, "all memory is back", func() bool {
		st := a.Stats()
		return st.Reserved == 0 && st.Committed == 0 && st.Quarantined == 0
	})
}

// load reads and writes until stop is called; good counts the calls that went well. Reads check every
// byte.
func load(t *testing.T, c *Client, a *arena.Arena, size int) (good *atomic.Int64, stop func()) {
	done := make(chan struct{})
	good = new(atomic.Int64)
	var wg sync.WaitGroup
	worker := func(w int) {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			k, fill := key(i%4), byte(i%4)
			var err error
			if w == 0 {
				err = put(t, c, a, k, size, fill)
			} else {
				err = get(t, c, k, size, fill)
			}
			if err == nil {
				good.Add(1)
			} else if !store.Classified(err) {
				t.Errorf("error without a class: %v", err)
			}
		}
	}
	for w := range 4 {
		wg.Go(func() { worker(w) })
	}
	var once sync.Once
	stop = func() {
		once.Do(func() { close(done) })
		wg.Wait()
	}
	t.Cleanup(stop)
	return good, stop
}

func TestClientKilledDuringTransfers(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{ClientTTL: 2 * time.Second})
	a := newArena(t, 64<<20)
	var log logbook
	c := open(t, Config{Addr: m.Addr(), ClientTTL: 2 * time.Second, Logger: slog.New(&log)}, a)
	const size = 4 << 20
	for i := range 4 {
		mustPut(t, c, a, key(i), size, byte(i))
	}
	good, stop := load(t, c, a, size)
	eventually(t, "the load runs", func() bool { return good.Load() > 20 })
	for range 2 {
		m.Client.Kill()
		eventually(t, "the loss is noticed, and all memory comes back", func() bool {
			st := c.Stats()
			return !st.Connected && st.QuarantineRanges == 0
		})
		if err := get(t, c, key(100), size, 0); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Get without a mooncake_client: %v, want ErrUnavailable", err)
		}
		m.Client.Start()
		m.WaitClient()
		eventually(t, "connected again", func() bool { return c.Stats().Connected })
	}
	stop()
	// The old segment is gone with its process; the master notices after its client_ttl.
	eventually(t, "objects are stored again", func() bool {
		return put(t, c, a, key(9), size, 9) == nil && get(t, c, key(9), size, 9) == nil
	})
	idle(t, a)
	if st := c.Stats(); st.Reconnects != 2 {
		t.Errorf("%d reconnects, want 2", st.Reconnects)
	}
	log.said(t, map[string]int{msgAway: 2, msgHere: 2})
	if err := c.Err(); err != nil {
		t.Errorf("the client gave up: %v", err)
	}
}

func TestMasterKilled(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a := newArena(t, 64<<20)
	var log logbook
	c := open(t, Config{Addr: m.Addr(), Logger: slog.New(&log)}, a)
	const size = 4 << 20
	mustPut(t, c, a, key(100), 1000, 1)
	good, stop := load(t, c, a, size)
	eventually(t, "the load runs", func() bool { return good.Load() > 20 })
	m.Master.Kill()
	eventually(t, "the breaker opens", func() bool { return c.Stats().BreakerOpen })
	stop() // it ends what it began before the breaker opened
	start := time.Now()
	for range 20 {
		if err := get(t, c, key(1), size, 1); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("Get without a master: %v, want ErrUnavailable", err)
		}
		if _, err := exists(t, c, key(1)); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("Exists without a master: %v, want ErrUnavailable", err)
		}
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("40 calls with an open breaker took %v", d)
	}
	m.Master.Start()
	m.WaitMaster()
	eventually(t, "objects are stored again", func() bool {
		return put(t, c, a, key(101), 1000, 2) == nil && get(t, c, key(101), 1000, 2) == nil
	})
	if err := get(t, c, key(100), 1000, 1); !errors.Is(err, store.ErrMiss) {
		t.Errorf("an object from before the master's restart: %v, want ErrMiss", err)
	}
	idle(t, a)
	log.said(t, map[string]int{msgAway: 1, msgHere: 1})
}

// A mooncake_client that stands still holds nobody up beyond its ctx, and what it was doing is in
// quarantine until it moves again: the read that was given up lands after the caller has left.
func TestClientStandsStill(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a := newArena(t, 16<<20)
	var log logbook
	c := open(t, Config{Addr: m.Addr(), Logger: slog.New(&log)}, a)
	const size = 1 << 20
	mustPut(t, c, a, key(1), size, 1)
	m.Client.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	g := c.Get(ctx, []store.Want{{Key: key(1), Bytes: size}})[0]
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("a Get with 300 ms took %v", d)
	}
	if !errors.Is(g.Err, store.ErrUnconfirmed) || !errors.Is(g.Err, context.DeadlineExceeded) {
		t.Errorf("Get: %v, want ErrUnconfirmed for the deadline", g.Err)
	}
	if st := c.Stats(); st.QuarantineBytes != size || a.Stats().Quarantined != size {
		t.Errorf("%d bytes in quarantine, the arena says %d, want %d", st.QuarantineBytes, a.Stats().Quarantined, size)
	}
	eventually(t, "the missing heartbeat is noticed", func() bool { return c.Stats().BreakerOpen })
	m.Client.Signal(syscall.SIGCONT)
	idle(t, a)
	eventually(t, "calls go through", func() bool { return get(t, c, key(1), size, 1) == nil })
	if st := c.Stats(); st.QuarantineRanges != 0 || st.Reconnects != 0 {
		t.Errorf("%d ranges in quarantine, %d reconnects, want none", st.QuarantineRanges, st.Reconnects)
	}
	log.said(t, map[string]int{msgAway: 1, msgHere: 1})
}

// Case T09 with the real server, on a single connection: the answer to a call that was left is never taken
// for that of another, and what it writes late goes into memory that nobody has.
func TestT09AbandonedGet(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a := newArena(t, 16<<20)
	c := open(t, Config{Addr: m.Addr(), ReadConns: 1}, a)
	const size = 1 << 20
	for i := range 8 {
		mustPut(t, c, a, key(i), size, byte(i))
	}
	for round := range 3 {
		m.Client.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		left := c.Get(ctx, []store.Want{{Key: key(0), Bytes: size}})[0]
		cancel()
		if !errors.Is(left.Err, store.ErrUnconfirmed) {
			t.Errorf("Get that was left: %v, want ErrUnconfirmed", left.Err)
		}
		if left.Buf != nil {
			left.Buf.Release()
		}
		var wg sync.WaitGroup
		for i := 1; i < 8; i++ {
			wg.Go(func() {
				if err := get(t, c, key(i), size, byte(i)); err != nil {
					t.Errorf("round %d: Get(%d) behind one that was left: %v", round, i, err)
				}
			})
		}
		m.Client.Signal(syscall.SIGCONT)
		wg.Wait()
		idle(t, a)
	}
}

// A mapping that is gone, as after 10 s without heartbeats, is made anew within the call.
func TestMappingLost(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a := newArena(t, 16<<20)
	c := open(t, Config{Addr: m.Addr()}, a)
	mustPut(t, c, a, key(1), 1000, 1)
	lose := func() {
		l, s := c.current()
		if r, err := l.write().unmap(t.Context(), s.id); err != nil || r.code != codeOK {
			t.Fatalf("unmap: %v, %v", r.code, err)
		}
	}
	lose()
	if err := get(t, c, key(1), 1000, 1); err != nil {
		t.Errorf("Get after the mapping was lost: %v", err)
	}
	lose()
	mustPut(t, c, a, key(2), 1000, 2)
	if st := c.Stats(); st.Rotations != 2 {
		t.Errorf("%d rotations, want 2", st.Rotations)
	}
}

func TestStoreFull(t *testing.T) {
	t.Parallel()
	const segment, n, size = 32 << 20, 60, 1 << 20
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{SegmentBytes: segment, LeaseTTL: 200 * time.Millisecond})
	a := newArena(t, 16<<20)
	c := open(t, Config{Addr: m.Addr()}, a)
	stored := 0
	for i := range n {
		switch err := put(t, c, a, key(i), size, byte(i)); {
		case err == nil:
			stored++
		case !errors.Is(err, store.ErrRejected):
			t.Fatalf("PUT %d into a full Store: %v, want ErrRejected", i, err)
		}
	}
	if stored < n*3/4 {
		t.Errorf("%d of %d objects were stored, want most: old ones make room", stored, n)
	}
	hits := 0
	for i := range n {
		switch err := get(t, c, key(i), size, byte(i)); {
		case err == nil:
			hits++
		case !errors.Is(err, store.ErrMiss):
			t.Errorf("Get(%d): %v, want ErrMiss", i, err)
		}
	}
	if hits == 0 || hits > segment/size {
		t.Errorf("%d objects of %d bytes live in a segment of %d", hits, size, segment)
	}
	if err := put(t, c, a, key(n), 15<<20, 1); err != nil && !errors.Is(err, store.ErrRejected) {
		t.Errorf("PUT of 15 MiB: %v", err)
	}
	idle(t, a)
}

// Remove leaves a key alone while somebody may be reading it, hides it, and removes it later.
func TestRemoveOfWhatIsRead(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{LeaseTTL: 1500 * time.Millisecond})
	a := newArena(t, 4<<20)
	c := open(t, Config{Addr: m.Addr(), RemoveWait: time.Millisecond}, a)
	mustPut(t, c, a, key(1), 1000, 1)
	if err := get(t, c, key(1), 1000, 1); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(t.Context(), []embedding.Key{key(1)}); !errors.Is(err, store.ErrRejected) {
		t.Errorf("Remove of a leased key: %v, want ErrRejected", err)
	}
	if err := get(t, c, key(1), 1000, 1); !errors.Is(err, store.ErrMiss) {
		t.Errorf("Get of a doomed key: %v, want ErrMiss", err)
	}
	if ok, err := exists(t, c, key(1)); ok || err != nil {
		t.Errorf("Exists of a doomed key: %v, %v", ok, err)
	}
	if err := put(t, c, a, key(1), 1000, 2); c.Stats().Doomed == 1 && !errors.Is(err, store.ErrRejected) {
		t.Errorf("Put of a doomed key: %v, want ErrRejected: it would count as stored, and be removed", err)
	}
	eventually(t, "the key is removed", func() bool { return c.Stats().Doomed == 0 })
	mustPut(t, c, a, key(1), 1000, 7)
	if err := get(t, c, key(1), 1000, 7); err != nil {
		t.Errorf("the key after its removal: %v", err)
	}
}

// The order of starting does not matter.
func TestClientNotThereAtStart(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{ClientTTL: time.Second})
	m.Client.Kill()
	a := newArena(t, 4<<20)
	var log logbook
	c, err := Open(t.Context(), Config{Addr: m.Addr(), Logger: slog.New(&log)}, a)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	if err := get(t, c, key(1), 10, 1); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Get: %v, want ErrUnavailable", err)
	}
	m.Client.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	log.said(t, map[string]int{msgNoConnection: 1, msgConnected: 1})
	// A PUT may still be sent to the segment of the process that was killed.
	for i := 1; put(t, c, a, key(i), 10, 1) != nil; i++ {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			t.Fatal("no PUT goes through")
		}
	}
}

// A server of another release than the client knows refuses the questions for its layout, each without harm,
// and is told of in words.
func TestUnknownRelease(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	conn, err := dialConn(t.Context(), m.Addr(), func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	var release *errRelease
	if _, err := conn.findLayout(t.Context(), putLayouts[1:]); !errors.As(err, &release) || !strings.Contains(err.Error(), "none of the known layouts (0.3.12, 0.3.11, 0.3.10)") {
		t.Errorf("a client that does not know 0.3.13: %v", err)
	}
	if l, err := conn.findLayout(t.Context(), putLayouts); err != nil || l.release != "0.3.13" {
		t.Errorf("on the same connection: %+v, %v, want 0.3.13", l, err)
	}
}

// Two workers share one mooncake_client, each with its arena, and do not disturb each other.
func TestTwoWorkers(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	const size = 1 << 20
	for range 2 {
		a := newArena(t, 32<<20)
		c := open(t, Config{Addr: m.Addr()}, a)
		for i := range 4 {
			mustPut(t, c, a, key(i), size, byte(i))
		}
		good, _ := load(t, c, a, size)
		defer eventually(t, "both make progress", func() bool { return good.Load() > 100 })
	}
}
