// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
	"afterimage/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// bench is a Publisher, its Store and its memory.
type bench struct {
	*testing.T
	arena *arena.Arena
	srv   *ram.Server
	store *testkit.FaultStore
	guard *store.Guard
	p     *Publisher
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "test", Bytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchIn(t, a, change)
	t.Cleanup(func() {
		b.stop()
		if err := a.Close(); err != nil {
			t.Errorf("references left: %v", err)
		}
	})
	return b
}

// newBenchIn makes a bench that has to be stopped.
func newBenchIn(t *testing.T, a *arena.Arena, change func(*Config)) *bench {
	t.Helper()
	l, err := ram.NewLocal(ram.Config{MaxBytes: a.Stats().Capacity / 4, Logger: quiet}, a)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, arena: a, srv: l.Server(), store: testkit.NewFaultStore(l, a)}
	if b.guard, err = store.NewGuard(store.GuardConfig{Store: b.store, Arena: a, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Store: b.guard, Protocol: embedding.A1, Logger: quiet}
	if change != nil {
		change(&cfg)
	}
	if b.p, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// stop drops what is pending and closes all but the arena.
func (b *bench) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.p.Close(ctx)
	if err := b.guard.Close(); err != nil {
		b.Error(err)
	}
}

func key(i int) embedding.Key { return embedding.Key(fmt.Sprintf("ns@id:%d", i)) }

// object makes a sealed object of rows x 4 float32, all v.
func (b *bench) object(k embedding.Key, rows int, v float32) (*arena.Buf, embedding.Meta) {
	b.Helper()
	m := embedding.Meta{Rows: rows, Cols: 4, DType: embedding.Float32,
		Layout: embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}}
	buf, err := b.arena.Reserve(embedding.A1.ObjectBytes(m.Layout, m.Cols, m.DType))
	if err != nil {
		b.Fatal(err)
	}
	for p := buf.Bytes()[embedding.A1.PayloadOffset(m.Layout):]; len(p) > 0; p = p[4:] {
		binary.LittleEndian.PutUint32(p, math.Float32bits(v))
	}
	if err := embedding.A1.Seal(buf.Bytes(), k, m); err != nil {
		b.Fatal(err)
	}
	buf.Commit()
	return buf, m
}

// publish makes an object, publishes it and lets go of it.
func (b *bench) publish(i, rows int, v float32) {
	b.Helper()
	buf, m := b.object(key(i), rows, v)
	defer buf.Release()
	b.p.Publish(key(i), buf, m)
}

func (b *bench) flush() {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.p.Flush(ctx); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) counted(o Outcome, want float64) {
	b.Helper()
	if got := testutil.ToFloat64(b.p.Metrics().outcomes.WithLabelValues(string(o))); got != want {
		b.Errorf("%s counted %v times, want %v", o, got, want)
	}
}

// hold keeps every PUT waiting until the returned function is called.
func (b *bench) hold() (release func()) {
	gate := make(chan struct{})
	b.store.Set(testkit.Exists, testkit.Fault{Hold: gate})
	return sync.OnceFunc(func() { close(gate) })
}

func TestPublish(t *testing.T) {
	b := newBench(t, nil)
	for i := range 5 {
		b.publish(i, 3+i, float32(i))
	}
	b.flush()
	b.counted(Stored, 5)
	for i := range 5 {
		g := b.store.Get(t.Context(), []store.Want{{Key: key(i), Bytes: 1 << 20}})[0]
		if g.Err != nil {
			t.Fatal(g.Err)
		}
		c := embedding.Contract{Rows: 3 + i, Cols: 4, DType: embedding.Float32}
		if _, _, err := embedding.A1.Open(g.Buf.Bytes(), key(i), c); err != nil {
			t.Errorf("object %d: %v", i, err)
		}
		g.Buf.Release()
	}
	b.publish(0, 3, 0) // another worker was first
	b.flush()
	b.counted(Exists, 1)
	if n := b.store.Calls(testkit.Put); n != 5 {
		t.Errorf("%d PUTs, want 5: what is there is not sent", n)
	}
}

// publication_budget_charges_and_releases_backing_storage: both budgets refuse at once and are given
// back.
func TestBudgets(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxPendingItems = 3 })
	release := b.hold()
	for i := range 5 {
		b.publish(i, 3, 1)
	}
	b.publish(1, 3, 1)
	b.counted(FullItems, 2)
	b.counted(Duplicate, 1)
	release()
	b.flush()
	b.counted(Stored, 3)
	b.publish(9, 3, 1)
	b.flush()
	b.counted(Stored, 4)

	one, _ := b.object("k", 3, 1)
	size := (int64(one.Len()) + 63) / 64 * 64
	one.Release()
	b = newBench(t, func(c *Config) { c.MaxPendingBytes = 2*size + 1 })
	release = b.hold()
	for i := range 3 {
		b.publish(i, 3, 1)
	}
	b.counted(FullBytes, 1)
	if got := testutil.ToFloat64(b.p.Metrics().bytes); got != float64(2*size) {
		t.Errorf("%v bytes pending, want %d", got, 2*size)
	}
	release()
	b.flush()
	if got := testutil.ToFloat64(b.p.Metrics().bytes); got != 0 {
		t.Errorf("%v bytes pending after all ended", got)
	}
}

// non_matrix_output_is_rejected_before_registration, and the NaN guard: nothing wrong reaches the Store.
func TestUnfitObjectsAreRefusedBeforeIO(t *testing.T) {
	b := newBench(t, nil)
	b.publish(0, 3, float32(math.NaN()))
	b.publish(1, 3, float32(math.Inf(-1)))
	buf, m := b.object(key(2), 3, 1)
	defer buf.Release()
	for i, change := range []func(*embedding.Meta){
		func(m *embedding.Meta) { m.Rows = 0 },
		func(m *embedding.Meta) { m.Cols = -1 },
		func(m *embedding.Meta) { m.DType = 7 },
		func(m *embedding.Meta) { m.Rows++ }, // the object is shorter than it says
		func(m *embedding.Meta) { m.Rows-- },
	} {
		m := m
		change(&m)
		b.p.Publish(key(10+i), buf, m)
	}
	b.flush()
	b.counted(NotFinite, 2)
	b.counted(Empty, 3)
	b.counted(Malformed, 2)
	if n := b.store.Calls(testkit.Exists) + b.store.Calls(testkit.Put); n != 0 {
		t.Errorf("%d Store calls, want none", n)
	}
}

// A refusal frees the memory and the place in line at once; an unconfirmed PUT frees the place, and its
// memory stays where the Store may still read it.
func TestStoreFaults(t *testing.T) {
	for class, o := range map[error]Outcome{store.ErrRejected: Rejected, store.ErrUnavailable: Unavailable} {
		b := newBench(t, nil)
		b.store.Set(testkit.Put, testkit.Fault{Err: class, Times: 1})
		b.publish(1, 3, 1)
		b.flush()
		b.counted(o, 1)
		b.publish(1, 3, 1)
		b.flush()
		b.counted(Stored, 1)
	}
	for _, err := range []error{store.ErrUnconfirmed, errors.New("no class")} {
		b := newBench(t, nil)
		b.store.Set(testkit.Put, testkit.Fault{Err: err, Times: 1})
		b.publish(1, 3, 1)
		b.flush()
		b.counted(Unconfirmed, 1)
		if b.arena.Stats().Quarantined == 0 {
			t.Error("memory that somebody may still read was given back")
		}
		if got := testutil.ToFloat64(b.p.Metrics().bytes); got != 0 {
			t.Errorf("%v bytes pending, want none: the budget is for work, not for what is lost", got)
		}
		b.publish(1, 3, 1)
		b.publish(2, 3, 1)
		b.flush()
		b.counted(Distrusted, 1)
		b.counted(Stored, 1)
		if err := b.p.Err(); err != nil {
			t.Errorf("Err: %v, want none: the worker goes on", err)
		}
	}
}

// Case C06: the largest object is known from the start. A larger one is neither sent nor cut up but
// counted, and neither it nor a PUT that the Store has no room for is felt by those that fit.
func TestLargestObject(t *testing.T) {
	var log putLog
	b := newBench(t, func(c *Config) {
		log.Store = c.Store
		c.Store = &log
	})
	most := b.guard.Capabilities().MaxPut
	if most != 512<<10 {
		t.Fatalf("MaxPut is %d, want half of the Store's 1 MiB", most)
	}
	head := embedding.A1.PayloadOffset(embedding.Layout{Parts: []embedding.Part{{Rows: 1, Positions: 1}}})
	fits := (int(most) - head) / 16 // rows of 4 float32
	b.publish(1, fits, 1)
	b.publish(2, fits+1, 1)
	b.flush()
	b.counted(Stored, 1)
	b.counted(TooLarge, 1)
	if !slices.Equal(log.keys, []embedding.Key{key(1)}) {
		t.Errorf("PUTs of %v, want that of the object that fits", log.keys)
	}
	b.store.Set(testkit.Put, testkit.Fault{Err: fmt.Errorf("%w: no room", store.ErrRejected)})
	b.publish(3, 3, 1)
	b.flush()
	b.store.Set(testkit.Put, testkit.Fault{})
	b.publish(4, 3, 1)
	b.flush()
	b.counted(Rejected, 1)
	b.counted(Stored, 2)
}

// readiness_and_shutdown_do_not_block_p2p_completion: Publish never waits; Close drains the queue and
// refuses late work.
func TestCloseDrains(t *testing.T) {
	b := newBench(t, nil)
	release := b.hold()
	for i := range 4 {
		b.publish(i, 3, 1)
	}
	closed := make(chan error)
	go func() { closed <- b.p.Close(context.Background()) }()
	for begun := false; !begun; runtime.Gosched() {
		b.p.mu.Lock()
		begun = b.p.closed
		b.p.mu.Unlock()
	}
	b.publish(5, 3, 1)
	b.counted(Closed, 1)
	release()
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	b.counted(Stored, 4)
}

func TestCloseOutOfTimeDropsTheRest(t *testing.T) {
	b := newBench(t, nil)
	b.hold() // for good
	for i := range 4 {
		b.publish(i, 3, 1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := b.p.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Flush: %v", err)
	}
	if err := b.p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	b.counted(Shutdown, 4)
	if err := b.p.Close(ctx); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestWithoutStore(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Store = nil })
	b.publish(1, 3, 1)
	b.flush()
	b.counted(NoStore, 1)
}

func TestManyAtOnce(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Workers = 3; c.MaxPendingItems = 1000 })
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				b.publish((w*17+i)%100, 3, 1)
			}
		})
	}
	wg.Wait()
	b.flush()
	if n := b.srv.Stats().Objects; n == 0 || n > 100 {
		t.Errorf("%d objects in the Store, want 1 to 100", n)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{}, {Protocol: embedding.A1, MaxPendingItems: -1}, {Protocol: embedding.A1, MaxPendingBytes: -1}, {Protocol: embedding.A1, TTL: -1}, {Protocol: embedding.A1, Workers: -1}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) succeeded", c)
		}
	}
}
