// SPDX-License-Identifier: Apache-2.0

// The checks of vLLM's test_cross_encoder_cache.py, each under its own name. A comment says what the
// original asserts and what stands for it here. Originals speak of a staging buffer that is registered
// with the Store and copied from; here an object is read into a range of the one arena and used in
// place, so "the staging is retained" reads "the ranges are in quarantine". They run with
// on_unconfirmed = "exit", whose effects are those of the original.
package testkit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/embedding"
	"afterimage/internal/publish"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
	"afterimage/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// client is one worker's connection to the Store that all workers of a test share.
type client struct {
	*testkit.FaultStore
	closes   atomic.Int32
	closeErr error
}

func (c *client) Close() error {
	c.closes.Add(1)
	return c.closeErr
}

// fleet is a Store and the workers round it.
type fleet struct {
	*testing.T
	arena *arena.Arena
	store *testkit.FaultStore
	srv   *ram.Server
	ns    embedding.Namespace
	stuck bool // memory stays in use, as the test wants it
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "test", Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	l, err := ram.NewLocal(ram.Config{MaxBytes: 1 << 20, Logger: quiet}, a)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{T: t, arena: a, srv: l.Server(), store: testkit.NewFaultStore(l, a), ns: embedding.Namespace{
		Model: "shared/model", Encoder: "encoder:default", DType: embedding.Float32, Protocol: embedding.V3}}
	t.Cleanup(func() {
		if err := f.store.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); (err != nil) != f.stuck {
			t.Errorf("memory in use at the end: %v, want %v", err, f.stuck)
		}
	})
	return f
}

// worker is one Encoder without its engine.
type worker struct {
	f         *fleet
	client    *client
	guard     *store.Guard
	cache     *cache.Cache
	resolver  *resolve.Resolver
	publisher *publish.Publisher
	fatal     []error // what the worker was told to exit with
}

// config changes a worker before it starts.
type config struct {
	readBuffer int64
	publish    publish.Config
}

func (f *fleet) worker(change func(*config)) *worker {
	f.Helper()
	w := &worker{f: f, client: &client{FaultStore: f.store}, cache: cache.New(1 << 20)}
	var cfg config
	if change != nil {
		change(&cfg)
	}
	var err error
	w.guard, err = store.NewGuard(store.GuardConfig{Store: w.client, Arena: f.arena, OnUnconfirmed: store.Exit, Logger: quiet,
		Fatal: func(err error) { w.fatal = append(w.fatal, err) }})
	if err != nil {
		f.Fatal(err)
	}
	cfg.publish.Store, cfg.publish.Protocol, cfg.publish.Logger = w.guard, f.ns.Protocol, quiet
	if w.publisher, err = publish.New(cfg.publish); err != nil {
		f.Fatal(err)
	}
	w.resolver, err = resolve.New(resolve.Config{Cache: w.cache, Store: w.guard, Protocol: f.ns.Protocol,
		ReadBufferBytes: cfg.readBuffer, Reap: w.publisher.Err, Logger: quiet})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		w.publisher.Close(f.ended())
		w.cache.Close()
		w.guard.Close()
	})
	return w
}

// ended returns a context that has ended.
func (f *fleet) ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// item is an image of rows x 4.
func (f *fleet) item(id string, rows int) resolve.Item {
	return resolve.Item{Key: f.ns.Key(embedding.Identifier(id)),
		Contract: embedding.Contract{Rows: rows, Cols: 4, DType: f.ns.DType}}
}

// object makes the object of it, filled with bytes of seed.
func (f *fleet) object(it resolve.Item, seed byte) (*arena.Buf, embedding.Meta) {
	f.Helper()
	c := it.Contract
	m := embedding.Meta{Rows: c.Rows, Cols: c.Cols, DType: c.DType}
	buf, err := f.arena.Reserve(embedding.HeaderBytesV3 + c.PayloadBytes())
	if err != nil {
		f.Fatal(err)
	}
	copy(buf.Bytes()[embedding.HeaderBytesV3:], payload(c, seed))
	if err := f.ns.Protocol.Seal(buf.Bytes(), it.Key, m); err != nil {
		f.Fatal(err)
	}
	buf.Commit()
	return buf, m
}

// payload returns finite values that only seed yields.
func payload(c embedding.Contract, seed byte) []byte {
	p := make([]byte, c.PayloadBytes())
	for i := range p {
		p[i] = (seed + byte(i)) & 0x3f // never all ones in an exponent
	}
	return p
}

// plant stores an object by the short way.
func (f *fleet) plant(key embedding.Key, object []byte) {
	f.Helper()
	buf, err := f.arena.Reserve(len(object))
	if err != nil {
		f.Fatal(err)
	}
	defer buf.Release()
	copy(buf.Bytes(), object)
	buf.Commit()
	if err := f.store.Put(f.Context(), key, buf, store.PutOptions{}); err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) plantItem(it resolve.Item, seed byte) {
	f.Helper()
	buf, _ := f.object(it, seed)
	defer buf.Release()
	f.plant(it.Key, buf.Bytes())
}

// publish makes an object and publishes it.
func (w *worker) publish(it resolve.Item, seed byte) {
	w.f.Helper()
	buf, m := w.f.object(it, seed)
	defer buf.Release()
	w.publisher.Publish(it.Key, buf, m)
}

func (w *worker) flush() {
	w.f.Helper()
	if err := w.publisher.Flush(w.f.Context()); err != nil {
		w.f.Fatal(err)
	}
}

// load resolves and copies out what was found; nil is a miss.
func (w *worker) load(items ...resolve.Item) [][]byte {
	w.f.Helper()
	out := make([][]byte, len(items))
	for i, r := range w.resolver.Resolve(w.f.Context(), items) {
		if r.Buf != nil {
			out[i] = bytes.Clone(r.Buf.Bytes())
			r.Buf.Release()
		}
	}
	return out
}

// loaded checks that w finds exactly the objects of it with seed.
func (w *worker) loaded(it resolve.Item, seed byte) {
	w.f.Helper()
	got := w.load(it)[0]
	if got == nil || !bytes.Equal(got[embedding.HeaderBytesV3:], payload(it.Contract, seed)) {
		w.f.Errorf("%s: %d bytes found, want the object of seed %d", it.Key, len(got), seed)
	}
}

// held is how many bytes of the arena are in use.
func (f *fleet) held() int64 {
	st := f.arena.Stats()
	return st.Reserved + st.Committed + st.Quarantined
}

// poisoned checks the effects of an unconfirmed completion: the worker is told to exit, later calls fail
// without reaching the Store, and closing fails and closes nothing.
func (w *worker) poisoned() {
	f := w.f
	f.Helper()
	if len(w.fatal) != 1 || !errors.Is(w.fatal[0], store.ErrMustExit) || !errors.Is(w.fatal[0], store.ErrUnconfirmed) {
		f.Errorf("the worker was told %v, want once that it must exit", w.fatal)
	}
	calls := f.store.AllCalls()
	r := w.resolver.Resolve(f.Context(), []resolve.Item{f.item("later", 1)})[0]
	if !errors.Is(r.Err, store.ErrMustExit) {
		f.Errorf("a later resolve: %v, want %v", r.Err, store.ErrMustExit)
	}
	buf, _ := f.object(f.item("later", 1), 1)
	defer buf.Release()
	if err := w.guard.Put(f.Context(), "later", buf, store.PutOptions{}); !errors.Is(err, store.ErrMustExit) {
		f.Errorf("a later PUT: %v, want %v", err, store.ErrMustExit)
	}
	if n := f.store.AllCalls() - calls; n != 0 {
		f.Errorf("%d calls reached the Store after the poison", n)
	}
	if err := w.guard.Close(); !errors.Is(err, store.ErrMustExit) {
		f.Errorf("Close: %v, want %v", err, store.ErrMustExit)
	}
	if n := w.client.closes.Load(); n != 0 {
		f.Error("the client was closed although the Store may still use its memory")
	}
}
