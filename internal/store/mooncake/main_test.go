// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"sync"
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
	// The tests wait for other processes most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// logbook counts what a client logs for all to see, by message.
type logbook struct {
	mu    sync.Mutex // guards count
	count map[string]int
}

func (b *logbook) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler           { return b }
func (b *logbook) WithGroup(string) slog.Handler                { return b }

func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count == nil {
		b.count = map[string]int{}
	}
	b.count[r.Message]++
	return nil
}

// said fails the test unless the log comes to have each message as often as want says, and no other; those
// that want gives as -1 are not looked at.
func (b *logbook) said(t testing.TB, want map[string]int) {
	t.Helper()
	for msg, n := range want {
		eventually(t, "the log says "+msg, func() bool { return n < 0 || b.counts()[msg] >= n })
	}
	for msg, n := range b.counts() {
		if may, known := want[msg]; !known || may >= 0 && n != may {
			t.Errorf("%q is in the log %d times, want %d", msg, n, may)
		}
	}
}

func (b *logbook) counts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.count)
}

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

// patterns are made once: under the race detector their making takes longer than their transfer.
var patterns sync.Map

// pattern returns n bytes that fill and their position decide.
func pattern(n int, fill byte) []byte {
	k := fmt.Sprint(n, fill)
	if b, ok := patterns.Load(k); ok {
		return b.([]byte)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = fill + byte(i>>8)
	}
	patterns.Store(k, b)
	return b
}

func put(t testing.TB, c store.Store, a *arena.Arena, k embedding.Key, n int, fill byte) error {
	t.Helper()
	b, err := a.Reserve(n)
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrRejected, err)
	}
	defer b.Release()
	copy(b.Bytes(), pattern(n, fill))
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
	if !bytes.Equal(g.Buf.Bytes(), pattern(n, fill)) {
		t.Errorf("Get(%s): the %d bytes are not those of %d", k, n, fill)
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
