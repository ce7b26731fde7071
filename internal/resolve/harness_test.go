// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/binary"
	"io"
	"log/slog"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
	"afterimage/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// bench is an Encoder's memory and a Store, without the Encoder.
type bench struct {
	*testing.T
	proto embedding.Protocol
	arena *arena.Arena
	cache *cache.Cache
	srv   *ram.Server
	store *testkit.FaultStore
	guard *store.Guard
	r     *Resolver
}

func newBench(t *testing.T, proto embedding.Protocol, change func(*Config)) *bench {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "test", Bytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	l, err := ram.NewLocal(ram.Config{MaxBytes: 4 << 20, Logger: quiet}, a)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, proto: proto, arena: a, cache: cache.New(1 << 20), srv: l.Server(), store: testkit.NewFaultStore(l, a)}
	if b.guard, err = store.NewGuard(store.GuardConfig{Store: b.store, Arena: a, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Cache: b.cache, Store: b.guard, Protocol: proto, Logger: quiet}
	if change != nil {
		change(&cfg)
	}
	if b.r, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.r.Wait()
		b.cache.Close()
		if err := b.guard.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("references left: %v", err)
		}
	})
	return b
}

func item(name string, rows, cols int) Item {
	return Item{
		Key:      embedding.Key("ns@id:" + name),
		Contract: embedding.Contract{Rows: rows, Cols: cols, DType: embedding.Float32},
	}
}

// object makes the sealed object of it, whose values all are v.
func (b *bench) object(it Item, v float32) *arena.Buf {
	b.Helper()
	c := it.Contract
	meta := embedding.Meta{Rows: c.Rows, Cols: c.Cols, DType: c.DType,
		Layout: embedding.Layout{Parts: []embedding.Part{{Rows: c.Rows, Positions: c.Rows}}}}
	buf, err := b.arena.Reserve(b.proto.ObjectBytes(meta.Layout, c.Cols, c.DType))
	if err != nil {
		b.Fatal(err)
	}
	for p := buf.Bytes()[b.proto.PayloadOffset(meta.Layout):]; len(p) > 0; p = p[4:] {
		binary.LittleEndian.PutUint32(p, math.Float32bits(v))
	}
	if err := b.proto.Seal(buf.Bytes(), it.Key, meta); err != nil {
		b.Fatal(err)
	}
	buf.Commit()
	return buf
}

// plant stores the object of from under the key of it.
func (b *bench) plant(it, from Item, v float32) {
	b.Helper()
	buf := b.object(from, v)
	defer buf.Release()
	if err := b.store.Put(b.Context(), it.Key, buf, store.PutOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) resolve(items ...Item) []Result {
	b.Helper()
	rs := b.r.Resolve(b.Context(), items)
	if len(rs) != len(items) {
		b.Fatalf("%d results for %d items", len(rs), len(items))
	}
	for _, r := range rs {
		if r.Buf != nil {
			b.Cleanup(r.Buf.Release)
		}
	}
	return rs
}

// hit checks that r holds the object of it with values v, from src.
func (b *bench) hit(r Result, it Item, src control.Source, v float32) {
	b.Helper()
	if r.Buf == nil || r.Source != src || r.Reason != "" || r.Err != nil {
		b.Errorf("%s: source %q, reason %q, error %v; want a hit from %s", it.Key, r.Source, r.Reason, r.Err, src)
		return
	}
	meta, p, err := b.proto.Open(r.Buf.Bytes(), it.Key, it.Contract)
	if err != nil || meta.Rows != r.Meta.Rows || math.Float32frombits(binary.LittleEndian.Uint32(p)) != v {
		b.Errorf("%s: object %+v, %v; want values %v", it.Key, meta, err, v)
	}
}

func (b *bench) miss(r Result, want Reason) {
	b.Helper()
	if r.Buf != nil || r.Reason != want || r.Source != "" {
		b.Errorf("reason %q, source %q, error %v; want a miss with reason %q", r.Reason, r.Source, r.Err, want)
	}
}

func (b *bench) counted(result string, reason Reason, want float64) {
	b.Helper()
	if got := testutil.ToFloat64(b.r.Metrics().items.WithLabelValues(result, string(reason))); got != want {
		b.Errorf("count of %s %s is %v, want %v", result, reason, got, want)
	}
}

func both(t *testing.T, f func(*testing.T, embedding.Protocol)) {
	for _, p := range []embedding.Protocol{embedding.V3, embedding.A1} {
		t.Run(string(p), func(t *testing.T) { f(t, p) })
	}
}
