// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
)

// tally counts the calls that reach a Store.
type tally struct {
	*ram.Client
	exists, gets, removes atomic.Int32
}

func (t *tally) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	t.exists.Add(1)
	return t.Client.Exists(ctx, keys)
}

func (t *tally) Get(ctx context.Context, wants []store.Want) []store.Got {
	t.gets.Add(1)
	return t.Client.Get(ctx, wants)
}

func (t *tally) Remove(ctx context.Context, keys []embedding.Key) error {
	t.removes.Add(1)
	return t.Client.Remove(ctx, keys)
}

// lending makes a bench whose Store lends, in race builds too.
func lending(t *testing.T, change func(*Config)) (*bench, *tally) {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "test", Bytes: 4 << 20, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := ram.NewServer(ram.Config{MaxBytes: 4 << 20, Mapped: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "store.sock")
	ln, err := ram.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background(), ln) }()
	c, err := ram.Dial(t.Context(), ram.ClientConfig{Path: path, Arena: a})
	if err != nil {
		t.Fatal(err)
	}
	s := &tally{Client: c}
	b := &bench{T: t, proto: embedding.A1, arena: a, cache: cache.New(1 << 20), srv: srv}
	if b.guard, err = store.NewGuard(store.GuardConfig{Store: s, Arena: a, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Cache: b.cache, Store: b.guard, Protocol: b.proto, Logger: quiet}
	if change != nil {
		change(&cfg)
	}
	if b.r, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.cache.Close()
		err := errors.Join(b.guard.Close(), srv.Close(), a.Close())
		if err != nil {
			t.Error(err)
		}
		<-served
	})
	return b, s
}

// put stores the object of from under the key of it.
func (b *bench) put(it, from Item, v float32) {
	b.Helper()
	buf := b.object(from, v)
	defer buf.Release()
	if err := b.guard.Put(b.Context(), it.Key, buf, store.PutOptions{}); err != nil {
		b.Fatal(err)
	}
}

// Objects on loan are found by one question and read at once, whatever the read buffer holds, and cost the
// arena nothing.
func TestLoans(t *testing.T) {
	b, s := lending(t, func(c *Config) { c.ReadBufferBytes = 1000 })
	x, y, z := item("x", 3, 8), item("y", 1000, 8), item("z", 3, 8)
	b.put(x, x, 1)
	b.put(y, y, 2)
	calls := s.Stats().Calls
	rs := b.resolve(x, y, z)
	b.hit(rs[0], x, control.SourceStore, 1)
	b.hit(rs[1], y, control.SourceStore, 2)
	b.miss(rs[2], Absent)
	if rs[2].Err != nil {
		t.Errorf("a plain miss has the error %v", rs[2].Err)
	}
	for _, r := range rs[:2] {
		if !r.Buf.Foreign() {
			t.Error("a hit that is no loan")
		}
	}
	if e, g := s.exists.Load(), s.gets.Load(); e != 1 || g != 1 {
		t.Errorf("%d exists and %d get calls, want one each", e, g)
	}
	if n := s.Stats().Calls - calls; n != 0 {
		t.Errorf("%d calls of the Store's process for what its index tells", n)
	}
	if st := b.arena.Stats(); st.Reserved+st.Committed != 0 {
		t.Errorf("loans take %d bytes of the arena", st.Reserved+st.Committed)
	}
	b.miss(b.resolve(item("never stored", 3, 8))[0], Absent)
	if e := s.exists.Load(); e != 1 {
		t.Errorf("%d exists calls: what is surely absent is not asked for", e)
	}
}

// Case K04 for loans: an object that fits nobody is dropped although nobody saw it, and so is one whose
// head is wrong.
func TestWrongLoansAreDropped(t *testing.T) {
	for name, c := range map[string]struct {
		plant  func(b *bench, it Item)
		reason Reason
	}{
		"more rows": {func(b *bench, it Item) { b.put(it, item("image", 100_000/8, 8), 1) }, Contract},
		"rows":      {func(b *bench, it Item) { b.put(it, item("image", 256, 8), 1) }, Contract},
		"other key": {func(b *bench, it Item) { b.put(it, item("other", 275, 8), 1) }, Foreign},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := lending(t, nil)
			bad, good := item("image", 275, 8), item("healthy", 3, 8)
			c.plant(b, bad)
			b.put(good, good, 2)
			rs := b.resolve(bad, good)
			b.miss(rs[0], c.reason)
			b.hit(rs[1], good, control.SourceStore, 2)
			if n := b.srv.Stats().Objects; n != 1 {
				t.Errorf("%d objects in the Store, want the healthy one", n)
			}
			b.put(bad, bad, 9)
			b.hit(b.resolve(bad)[0], bad, control.SourceStore, 9)
		})
	}
}
