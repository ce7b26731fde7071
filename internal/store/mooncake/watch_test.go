// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// next returns the next event.
func next(t *testing.T, events <-chan store.Event) store.Event {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(30 * time.Second):
		t.Fatal("no event")
	}
	return store.Event{}
}

// What the master lists is told once, by whoever it was stored and for whatever reason it goes.
func TestWatch(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a := newArena(t, 4<<20)
	c := open(t, Config{Addr: m.Addr(), RemoveWait: 20 * time.Second}, a)
	mustPut(t, c, a, key(1), 1000, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log logbook
	events := Watch(ctx, WatchConfig{Admin: m.AdminAddr(), Every: 20 * time.Millisecond, Logger: slog.New(&log)})
	seq := uint64(0)
	want := func(kind store.EventKind, k embedding.Key) {
		t.Helper()
		e := next(t, events)
		if seq++; e != (store.Event{Kind: kind, Key: k, Seq: seq}) {
			t.Fatalf("event %+v, want %s of %q as number %d", e, kind, k, seq)
		}
	}
	want(store.Resync, "")
	want(store.Stored, key(1))
	mustPut(t, c, a, key(2), 1000, 2)
	want(store.Stored, key(2))
	if err := c.Remove(t.Context(), []embedding.Key{key(1)}); err != nil {
		t.Fatal(err)
	}
	want(store.Removed, key(1))
	m.Master.Kill()
	want(store.Resync, "")
	m.Master.Start()
	m.WaitMaster()
	eventually(t, "objects are stored again", func() bool { return put(t, c, a, key(3), 1000, 3) == nil })
	want(store.Stored, key(3))
	cancel()
	for range events { // it ends
	}
	log.said(t, map[string]int{
		"mooncake: the master does not list its objects; nothing is known of them meanwhile": 1,
		"mooncake: the master lists its objects again":                                       1,
	})
}

func TestCheckAdmin(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a := newArena(t, 4<<20)
	mustPut(t, open(t, Config{Addr: m.Addr()}, a), a, key(1), 1000, 1)
	if n, err := CheckAdmin(t.Context(), m.AdminAddr()); err != nil || n != 1 {
		t.Errorf("the master lists %d objects (%v), want 1", n, err)
	}
	for _, bad := range []string{"", "host", "127.0.0.1:1"} {
		if _, err := CheckAdmin(t.Context(), bad); err == nil {
			t.Errorf("no error from a master at %q", bad)
		}
	}
}

// A soft pin reaches the master; without one nothing does.
func TestSoftPin(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a := newArena(t, 4<<20)
	c := open(t, Config{Addr: m.Addr()}, a)
	mustPut(t, c, a, key(1), 1000, 1)
	b, err := a.Reserve(1000)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	b.Commit()
	if err := c.Put(t.Context(), key(2), b, store.PutOptions{SoftPin: true}); err != nil {
		t.Fatal(err)
	}
	if keys, pinned := m.Metric("master_key_count"), m.Metric("master_soft_pin_key_count"); keys != 2 || pinned != 1 {
		t.Errorf("the master has %v objects, %v of them pinned, want 2 and 1", keys, pinned)
	}
	if !c.Capabilities().SoftPin {
		t.Error("the capability is not named")
	}
}
