// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
	"afterimage/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// bench is a guarded Store that can fail.
type bench struct {
	*testing.T
	arena *arena.Arena
	store *testkit.FaultStore
	guard *store.Guard
}

func newBench(t *testing.T, cfg store.GuardConfig) *bench {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "test", Bytes: 9 << 20})
	if err != nil {
		t.Fatal(err)
	}
	l, err := ram.NewLocal(ram.Config{MaxBytes: 16 << 20, Logger: quiet}, a)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, arena: a, store: testkit.NewFaultStore(l, a)}
	cfg.Store, cfg.Arena, cfg.Logger = b.store, a, quiet
	if b.guard, err = store.NewGuard(cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// stop closes all and checks that every reference is back.
func (b *bench) stop() {
	b.Helper()
	if err := b.guard.Close(); err != nil {
		b.Error(err)
	}
	if err := b.arena.Close(); err != nil {
		b.Error(err)
	}
}

func (b *bench) put(k embedding.Key, fill byte, n int) error {
	b.Helper()
	buf, err := b.arena.Reserve(n)
	if err != nil {
		b.Fatal(err)
	}
	for i := range buf.Bytes() {
		buf.Bytes()[i] = fill
	}
	buf.Commit()
	defer buf.Release()
	return b.guard.Put(b.Context(), k, buf, store.PutOptions{})
}

func (b *bench) get(k embedding.Key, n int) error {
	g := b.guard.Get(b.Context(), []store.Want{{Key: k, Bytes: n}})[0]
	if g.Buf != nil {
		g.Buf.Release()
	}
	return g.Err
}

// A Guard is a Store, and so is a FaultStore without faults.
func TestContract(t *testing.T) {
	testkit.StoreContract(t, func(t *testing.T) testkit.StoreUnderTest {
		b := newBench(t, store.GuardConfig{})
		t.Cleanup(func() { _ = b.arena.Close() })
		return testkit.StoreUnderTest{Store: b.guard, Arena: b.arena}
	})
}

// An Exists with too few answers, or too many, says nothing of any key: which belong together is anybody's guess.
// Under Exit the worker ends.
func TestExistsOfAnotherLength(t *testing.T) {
	for name, states := range map[string]func([]store.State) []store.State{
		"short": func(s []store.State) []store.State { return s[:1] },
		"long":  func(s []store.State) []store.State { return append(s, store.State{Present: true}) },
	} {
		for _, on := range []store.OnUnconfirmed{store.Drain, store.Exit} {
			t.Run(fmt.Sprint(name, " ", on), func(t *testing.T) {
				fatal := 0
				b := newBench(t, store.GuardConfig{OnUnconfirmed: on, Fatal: func(error) { fatal++ }})
				defer b.stop()
				b.store.Set(testkit.Exists, testkit.Fault{States: states})
				got, err := b.guard.Exists(t.Context(), []embedding.Key{"a", "b"})
				if got != nil || !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("got %v, %v; want ErrUnavailable", got, err)
				}
				if want := map[store.OnUnconfirmed]int{store.Exit: 1}[on]; fatal != want {
					t.Errorf("told to end %d times, want %d", fatal, want)
				}
			})
		}
	}
}

// What an unconfirmed read had is in nobody's hands, however late the Store writes into it.
func TestLateWritesHitNobody(t *testing.T) {
	b := newBench(t, store.GuardConfig{})
	const size = 64 << 10
	if err := b.put("k", 1, size); err != nil {
		t.Fatal(err)
	}
	b.store.Set(testkit.Get, testkit.Fault{Err: testkit.GetError(testkit.TransferFail)})
	if err := b.get("k", size); !errors.Is(err, store.ErrUnconfirmed) {
		t.Fatalf("Get: %v", err)
	}
	b.store.Set(testkit.Get, testkit.Fault{})
	var all []*arena.Buf
	for buf, err := b.arena.Reserve(size); err == nil; buf, err = b.arena.Reserve(size) {
		clear(buf.Bytes())
		all = append(all, buf)
	}
	if n := b.store.WriteLate(0xee); n != size {
		t.Errorf("%d bytes written late, want %d", n, size)
	}
	for _, buf := range all {
		if strings.Contains(string(buf.Bytes()), "\xee") {
			t.Error("a late write reached memory that was handed out")
		}
		buf.Abort()
	}
	if st := b.guard.Stats(); st.Quarantined != size || st.Distrusted != 1 || st.Unconfirmed != 1 {
		t.Errorf("stats %+v", st)
	}
	b.stop()
}

// What the Store itself holds back costs the Guard no memory and no key, however often it happens; it
// is poison all the same where the worker has to exit.
func TestHeldByTheStore(t *testing.T) {
	held := testkit.Fault{Err: fmt.Errorf("%w: %w", store.ErrUnconfirmed, store.ErrHeld)}
	for _, on := range []store.OnUnconfirmed{store.Drain, store.Exit} {
		b := newBench(t, store.GuardConfig{OnUnconfirmed: on})
		if err := b.put("k", 1, 32<<10); err != nil {
			t.Fatal(err)
		}
		b.store.Set(testkit.Get, held)
		b.store.Set(testkit.Put, held)
		for range 3 {
			if err := b.get("k", 32<<10); !errors.Is(err, store.ErrUnconfirmed) {
				t.Errorf("%s: Get: %v", on, err)
			}
			if err := b.put("new", 1, 32<<10); !errors.Is(err, store.ErrUnconfirmed) {
				t.Errorf("%s: Put: %v", on, err)
			}
		}
		st := b.guard.Stats()
		if on == store.Exit {
			if !st.Shut || !errors.Is(b.guard.Err(), store.ErrMustExit) {
				t.Errorf("Exit: %+v, %v", st, b.guard.Err())
			}
			if err := b.store.Close(); err != nil { // a poisoned Guard closes nothing
				t.Error(err)
			}
			continue
		}
		if st.Unconfirmed != 6 || st.Quarantined != 0 || st.Distrusted != 0 || st.Shut {
			t.Errorf("Drain: stats %+v", st)
		}
		b.store.Set(testkit.Get, testkit.Fault{})
		if err := b.get("k", 32<<10); err != nil {
			t.Errorf("Get of a key that the Store trusts again: %v", err)
		}
		b.stop()
	}
}

// A Store that lost track of an object may claim to have it, and claim to have stored it.
func TestDistrustedKey(t *testing.T) {
	b := newBench(t, store.GuardConfig{})
	for _, k := range []embedding.Key{"bad", "good"} {
		if err := b.put(k, 1, 100); err != nil {
			t.Fatal(err)
		}
	}
	b.store.Set(testkit.Get, testkit.Fault{Err: store.ErrUnconfirmed, Times: 1})
	_ = b.get("bad", 100)
	states, err := b.guard.Exists(t.Context(), []embedding.Key{"good", "bad"})
	if err != nil || !states[0].Present || states[1].Present {
		t.Errorf("Exists: %v, %v; want the good key only", states, err)
	}
	gots := b.guard.Get(t.Context(), []store.Want{{Key: "bad", Bytes: 100}, {Key: "good", Bytes: 100}})
	if !errors.Is(gots[0].Err, store.ErrMiss) || !errors.Is(gots[0].Err, store.ErrDistrusted) || gots[1].Err != nil {
		t.Errorf("Get: %v, %v", gots[0].Err, gots[1].Err)
	} else {
		gots[1].Buf.Release()
	}
	puts := b.store.Calls(testkit.Put)
	if err := b.put("bad", 1, 100); !errors.Is(err, store.ErrRejected) || !errors.Is(err, store.ErrDistrusted) {
		t.Errorf("Put: %v", err)
	}
	if n := b.store.Calls(testkit.Put); n != puts {
		t.Error("a distrusted key was sent")
	}
	b.stop()
}

// More than a quarter of the arena in quarantine closes the client for good, and says so once.
func TestQuarantineLimit(t *testing.T) {
	var reasons []string
	b := newBench(t, store.GuardConfig{Unready: func(r string) { reasons = append(reasons, r) }})
	const size = 1 << 20
	for i := range 5 {
		k := embedding.Key(rune('a' + i))
		if err := b.put(k, 1, size); err != nil {
			t.Fatal(err)
		}
	}
	b.store.Set(testkit.Get, testkit.Fault{Err: store.ErrUnconfirmed})
	for i := range 5 {
		_ = b.get(embedding.Key(rune('a'+i)), size)
		if want := i >= 2; b.guard.Stats().Shut != want {
			t.Errorf("after %d MiB of 9: shut %v, want %v", i+1, !want, want)
		}
	}
	if len(reasons) != 1 || !strings.Contains(reasons[0], "closed for good") || !strings.Contains(reasons[0], "3145728 bytes") {
		t.Errorf("reasons %q, want one with both numbers", reasons)
	}
	calls := b.store.AllCalls()
	if _, err := b.guard.Exists(t.Context(), []embedding.Key{"x"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Exists: %v", err)
	}
	if err := b.put("x", 1, 10); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Put: %v", err)
	}
	if err := b.guard.Remove(t.Context(), nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Remove: %v", err)
	}
	if n := b.store.AllCalls(); n != calls {
		t.Errorf("%d calls after the end", n-calls)
	}
	b.stop()
}

// A Store that confirms nothing is given up before what is remembered of it takes up memory without bound.
func TestDistrustLimit(t *testing.T) {
	var reasons []string
	b := newBench(t, store.GuardConfig{Unready: func(r string) { reasons = append(reasons, r) }})
	defer b.stop()
	b.store.Set(testkit.Get, testkit.Fault{Answer: func([]store.Got) []store.Got { return nil }})
	wants := make([]store.Want, 1<<16)
	for i := range wants {
		wants[i] = store.Want{Key: embedding.Key(fmt.Sprint(i)), Bytes: 1}
	}
	b.guard.Get(t.Context(), wants)
	if st := b.guard.Stats(); st.Distrusted != len(wants) || st.Shut {
		t.Errorf("%+v, want all keys distrusted and the rest taken", st)
	}
	_ = b.get("one more", 1)
	if len(reasons) != 1 || !strings.Contains(reasons[0], "65537 keys are distrusted, limit 65536") || !b.guard.Stats().Shut {
		t.Errorf("reasons %q, want one with both numbers", reasons)
	}
}

// After a restart the reads are misses; the keys of before stay distrusted.
func TestRestart(t *testing.T) {
	b := newBench(t, store.GuardConfig{})
	if err := b.put("k", 1, 100); err != nil {
		t.Fatal(err)
	}
	fresh, err := ram.NewLocal(ram.Config{MaxBytes: 1 << 20, Logger: quiet}, b.arena)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.store.Restart(fresh); err != nil {
		t.Fatal(err)
	}
	if err := b.get("k", 100); !errors.Is(err, store.ErrMiss) {
		t.Errorf("Get after a restart: %v", err)
	}
	b.stop()
}

// A stalled Store costs the caller's deadline.
func TestStalled(t *testing.T) {
	b := newBench(t, store.GuardConfig{})
	for _, call := range []testkit.Call{testkit.Exists, testkit.Get, testkit.Put} {
		b.store.Set(call, testkit.Fault{Hold: make(chan struct{})})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.guard.Exists(ctx, []embedding.Key{"k"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Exists: %v", err)
	}
	if g := b.guard.Get(ctx, []store.Want{{Key: "k", Bytes: 1}})[0]; !errors.Is(g.Err, store.ErrUnavailable) {
		t.Errorf("Get: %v", g.Err)
	}
	b.stop()
}

func TestGuardConfig(t *testing.T) {
	b := newBench(t, store.GuardConfig{})
	defer b.stop()
	for _, c := range []store.GuardConfig{{}, {Store: b.store, OnUnconfirmed: "panic"}} {
		if _, err := store.NewGuard(c); err == nil {
			t.Errorf("NewGuard(%+v) succeeded", c)
		}
	}
}
