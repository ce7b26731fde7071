// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(envWorker); addr != "" {
		fmt.Fprintln(os.Stderr, playWorker(addr))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newArena(t testing.TB, n int64) *arena.Arena {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "test", Bytes: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("arena: %v", err)
		}
	})
	return a
}

// open returns a client that is connected, and closes it with the test.
func open(t testing.TB, cfg Config, a *arena.Arena) *Client {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := Open(ctx, cfg, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// put stores an object of n bytes that fill and their position decide.
func put(t testing.TB, c store.Store, a *arena.Arena, k embedding.Key, n int, fill byte) error {
	t.Helper()
	b, err := a.Reserve(n)
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrRejected, err)
	}
	defer b.Release()
	for i := range b.Bytes() {
		b.Bytes()[i] = fill + byte(i>>8)
	}
	b.Commit()
	return c.Put(t.Context(), k, b, store.PutOptions{})
}

func mustPut(t testing.TB, c store.Store, a *arena.Arena, k embedding.Key, n int, fill byte) {
	t.Helper()
	if err := put(t, c, a, k, n, fill); err != nil {
		t.Fatalf("Put(%s): %v", k, err)
	}
}

// get reads one object of n bytes and fails the test when it is there and is not what filled made.
func get(t testing.TB, c store.Store, k embedding.Key, n int, fill byte) error {
	t.Helper()
	g := c.Get(t.Context(), []store.Want{{Key: k, Bytes: n, Exact: true}})[0]
	if g.Err != nil {
		return g.Err
	}
	defer g.Buf.Release()
	for i, v := range g.Buf.Bytes() {
		if v != fill+byte(i>>8) {
			t.Errorf("Get(%s): byte %d of %d is %d, want %d", k, i, n, v, fill+byte(i>>8))
			break
		}
	}
	return nil
}

func exists(t testing.TB, c store.Store, k embedding.Key) (bool, error) {
	t.Helper()
	st, err := c.Exists(t.Context(), []embedding.Key{k})
	if err != nil {
		return false, err
	}
	return st[0].Present, nil
}

// eventually waits for a condition that another goroutine or process brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
