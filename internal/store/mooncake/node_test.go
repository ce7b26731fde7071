// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// All tests of this file run against real servers, and break them.

// A dead storage node costs misses, and nothing else: for a while the master says that its objects
// exist, reads of them fail in a way that leaves memory in doubt, and that memory comes back.
func TestStorageNodeDies(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{SegmentBytes: -1, ClientTTL: ttl})
	node, port := m.AddNode(256 << 20)
	a := newArena(t, 32<<20)
	var log logbook
	c := open(t, Config{Addr: m.Addr(), ClientTTL: ttl, Logger: slog.New(&log)}, a)
	// As the roles use it. The Guard is not closed: it owns nothing but the client.
	guard, err := store.NewGuard(store.GuardConfig{Store: c, Arena: a, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	const n, size = 12, 2 << 20 // more than a quarter of the arena, were none of it to come back
	eventually(t, "the segment is mounted", func() bool { return put(t, c, a, key(0), size, 0) == nil })
	for i := range n {
		mustPut(t, c, a, key(i), size, byte(i))
		if err := get(t, c, key(i), size, byte(i)); err != nil {
			t.Fatal(err)
		}
	}
	node.Kill()
	unconfirmed := 0
	for i := range n {
		err := get(t, guard, key(i), size, byte(i))
		if err == nil || !store.Classified(err) {
			t.Errorf("Get(%d) from a dead node: %v", i, err)
		}
		if !errors.Is(err, store.ErrUnconfirmed) {
			continue
		}
		unconfirmed++
		if ok, err := exists(t, guard, key(i)); ok && err == nil {
			t.Errorf("key %d is trusted after an unconfirmed read", i)
		}
		if err := put(t, guard, a, key(i), size, byte(i)); err == nil {
			t.Errorf("PUT of key %d claims to store what a dead node answers for", i)
		}
	}
	if unconfirmed == 0 {
		t.Error("no read was unconfirmed: the test did not meet its fault")
	}
	idle(t, a)
	if st := c.Stats(); st.Rotations == 0 || st.Reconnects != 0 {
		t.Errorf("%d rotations and %d reconnects, want some and none", st.Rotations, st.Reconnects)
	}
	if err := errors.Join(c.Err(), guard.Err()); err != nil {
		t.Errorf("the client gave up: %v", err)
	}
	node.Start()
	m.WaitNode(port)
	eventually(t, "objects are stored again", func() bool {
		return put(t, guard, a, key(1), size, 1) == nil && get(t, guard, key(1), size, 1) == nil
	})
	log.said(t, map[string]int{msgDoubt: 1, msgBack: 1})
}

// A storage node that stands still costs the reads that it was asked for, after a while, and nothing
// else: the cluster goes on, and memory comes back when the transfers are given up.
func TestStorageNodeStandsStill(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{SegmentBytes: -1})
	node, _ := m.AddNode(256 << 20)
	a := newArena(t, 32<<20)
	c := open(t, Config{Addr: m.Addr(), ClientTTL: 2 * time.Second}, a)
	const size = 4 << 20
	eventually(t, "the segment is mounted", func() bool { return put(t, c, a, key(1), size, 1) == nil })
	node.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	g := c.Get(ctx, []store.Want{{Key: key(1), Bytes: size}})[0]
	if d := time.Since(start); !errors.Is(g.Err, store.ErrUnconfirmed) || d > 20*time.Second {
		t.Errorf("Get of 500 ms from a node that stands still: %v after %v, want ErrUnconfirmed", g.Err, d)
	}
	if _, err := exists(t, c, key(2)); err != nil {
		t.Errorf("Exists meanwhile: %v", err)
	}
	if a.Stats().Quarantined != size {
		t.Errorf("%d bytes in quarantine, want %d", a.Stats().Quarantined, size)
	}
	idle(t, a)
	if err := c.Err(); err != nil {
		t.Errorf("the client gave up: %v", err)
	}
	node.Signal(syscall.SIGCONT)
	var last error
	t.Cleanup(func() {
		if last != nil {
			t.Logf("the last answer for the object: %v", last)
		}
	})
	eventually(t, "the object is read once its key is trusted", func() bool {
		last = get(t, c, key(1), size, 1)
		return last == nil
	})
}
