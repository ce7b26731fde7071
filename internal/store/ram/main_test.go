// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		playRole(role)
	}
	goleak.VerifyTestMain(m)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newArena(t testing.TB, n int64) *arena.Arena {
	t.Helper()
	return arenaOf(t, arena.Config{Name: "test", Bytes: n})
}

// newMapped returns an arena that lends and borrows in race builds, too.
func newMapped(t testing.TB, n int64) *arena.Arena {
	t.Helper()
	return arenaOf(t, arena.Config{Name: "test", Bytes: n, Mapped: true})
}

func arenaOf(t testing.TB, cfg arena.Config) *arena.Arena {
	t.Helper()
	a, err := arena.New(cfg)
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

// serve starts a Server at path; the returned function stops it.
func serve(t testing.TB, path string, cfg Config) (*Server, func()) {
	t.Helper()
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 64 << 20
	}
	cfg.Logger = quiet
	srv, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(context.Background(), ln) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		if err := srv.Close(); err != nil {
			t.Errorf("Server.Close: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
	t.Cleanup(stop)
	return srv, stop
}

func dial(t testing.TB, cfg ClientConfig) *Client {
	t.Helper()
	c, err := Dial(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func socket(t testing.TB) string { return filepath.Join(t.TempDir(), "store.sock") }

func filled(t testing.TB, a *arena.Arena, n int, fill byte) *arena.Buf {
	t.Helper()
	b, err := a.Reserve(n)
	if err != nil {
		t.Fatal(err)
	}
	fillWith(b.Bytes(), fill)
	b.Commit()
	return b
}

// fillWith writes v everywhere.
func fillWith(p []byte, v byte) {
	p[0] = v
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}

func put(t testing.TB, c store.Store, a *arena.Arena, k embedding.Key, n int, fill byte) error {
	t.Helper()
	b := filled(t, a, n, fill)
	defer b.Release()
	return c.Put(t.Context(), k, b, store.PutOptions{})
}

func mustPut(t testing.TB, c store.Store, a *arena.Arena, k embedding.Key, n int, fill byte) {
	t.Helper()
	if err := put(t, c, a, k, n, fill); err != nil {
		t.Fatalf("Put(%s): %v", k, err)
	}
}

// get reads one object and returns its size and first byte.
func get(t testing.TB, c store.Store, k embedding.Key) (int, byte, error) {
	t.Helper()
	g := c.Get(t.Context(), []store.Want{{Key: k, Bytes: 64 << 20}})[0]
	if g.Err != nil {
		return 0, 0, g.Err
	}
	defer g.Buf.Release()
	return g.Buf.Len(), g.Buf.Bytes()[0], nil
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
