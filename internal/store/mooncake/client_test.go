// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

func startWithFake(t *testing.T) (*fake, *Client, func(k embedding.Key, n int) store.Got) {
	t.Helper()
	f := startFake(t)
	a := newArena(t, 8<<20)
	c := open(t, Config{Addr: f.addr}, a)
	return f, c, func(k embedding.Key, n int) store.Got {
		g := c.Get(t.Context(), []store.Want{{Key: k, Bytes: n}})[0]
		if g.Buf != nil {
			g.Buf.Release()
		}
		return g
	}
}

// A heartbeat with status 0 says that mooncake_client lost its master.
func TestHeartbeatStatus(t *testing.T) {
	f, c, _ := startWithFake(t)
	f.mu.Lock()
	f.serving = false
	f.mu.Unlock()
	eventually(t, "the breaker opens", func() bool { return c.Stats().BreakerOpen })
	f.mu.Lock()
	f.serving = true
	f.mu.Unlock()
	eventually(t, "the breaker closes", func() bool { return !c.Stats().BreakerOpen })
}

// T09: a call that was left while it ran never gives its answer to another one, and its memory is not
// used again before the server is done with it.
func TestAbandonedCall(t *testing.T) {
	f, c, _ := startWithFake(t)
	entered, release := make(chan struct{}), make(chan struct{})
	f.set(func(_ uint32, keys []string, mem [][]byte) []int64 {
		if keys[0] == "slow" {
			entered <- struct{}{}
			<-release
		}
		return []int64{int64(copy(mem[0], keys[0]))}
	})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		g := c.Get(ctx, []store.Want{{Key: "slow", Bytes: 64}})[0]
		left <- g.Err
	}()
	<-entered
	cancel()
	if err := <-left; !errors.Is(err, store.ErrUnconfirmed) || !errors.Is(err, context.Canceled) {
		t.Errorf("abandoned Get: %v, want ErrUnconfirmed for the cancelled context", err)
	}
	if st := c.Stats(); st.QuarantineRanges != 1 || st.Distrusted != 0 {
		t.Errorf("%d ranges in quarantine, %d keys distrusted, want 1 and 0", st.QuarantineRanges, st.Distrusted)
	}
	for range 20 { // on every connection
		g := c.Get(t.Context(), []store.Want{{Key: "quick", Bytes: 64}})[0]
		if g.Err != nil {
			t.Fatal(g.Err)
		}
		if got := string(g.Buf.Bytes()); got != "quick" {
			t.Errorf("got %q, want the object of this call", got)
		}
		g.Buf.Release()
	}
	close(release)
	idle(t, c.arena)
	if st := c.Stats(); st.Rotations != 0 {
		t.Errorf("%d rotations, want none: the late answer settles it", st.Rotations)
	}
}

// A slow PUT holds up no GET and no exists call.
func TestSlowPut(t *testing.T) {
	f, c, read := startWithFake(t)
	entered, release := make(chan struct{}), make(chan struct{})
	f.set(func(fn uint32, _ []string, _ [][]byte) []int64 {
		if fn == fnPut {
			close(entered)
			<-release
			return []int64{0}
		}
		return []int64{1}
	})
	done := make(chan error)
	go func() { done <- put(t, c, c.arena, "k", 100, 1) }()
	<-entered
	if g := read("other", 100); g.Err != nil {
		t.Errorf("Get beside a slow PUT: %v", g.Err)
	}
	if _, err := exists(t, c, "other"); err != nil {
		t.Errorf("Exists beside a slow PUT: %v", err)
	}
	l, _ := c.current()
	if slices.Contains(l.reads, l.writes[0]) || l.ping == l.writes[0] || slices.Contains(l.reads, l.ping) {
		t.Error("heartbeats, reads and writes share a connection")
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("the slow PUT: %v", err)
	}
}

// Beyond a quarter of the arena no transfer starts; when the memory is back, they do.
func TestQuarantineLimit(t *testing.T) {
	f, c, read := startWithFake(t)
	release := make(chan struct{})
	f.set(func(_ uint32, keys []string, mem [][]byte) []int64 {
		if keys[0] != "fine" {
			<-release
		}
		return []int64{1}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	g := c.Get(ctx, []store.Want{{Key: "big", Bytes: 3 << 20}})[0]
	if !errors.Is(g.Err, store.ErrUnconfirmed) {
		t.Fatalf("Get: %v, want ErrUnconfirmed", g.Err)
	}
	if g := read("fine", 10); !errors.Is(g.Err, store.ErrUnavailable) || !strings.Contains(g.Err.Error(), "in doubt") {
		t.Errorf("Get beyond the limit: %v, want ErrUnavailable that says why", g.Err)
	}
	close(release)
	eventually(t, "transfers start again", func() bool { return read("fine", 10).Err == nil })
}

// When nobody lets go of too much memory for too long, the client closes for good and says so; the
// arena then knows that it cannot be unmapped.
func TestGiveUp(t *testing.T) {
	f := startFake(t)
	a := newArena(t, 1<<20)
	f.stubborn = true
	f.set(func(uint32, []string, [][]byte) []int64 { return []int64{int64(codeTransferFailed)} })
	c, err := Open(t.Context(), Config{Addr: f.addr, Logger: quiet, GiveUpTimeout: time.Millisecond, CloseTimeout: time.Second}, a)
	if err != nil {
		t.Fatal(err)
	}
	if g := c.Get(t.Context(), []store.Want{{Key: "k", Bytes: 1 << 19}})[0]; !errors.Is(g.Err, store.ErrUnconfirmed) {
		t.Fatalf("Get: %v, want ErrUnconfirmed", g.Err)
	}
	select {
	case <-c.Dead():
	case <-time.After(20 * time.Second):
		t.Fatal("the client did not give up")
	}
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "524288 of 1048576 bytes") {
		t.Errorf("Err: %v, want both numbers", err)
	}
	if g := c.Get(t.Context(), []store.Want{{Key: "k2", Bytes: 10}})[0]; !errors.Is(g.Err, store.ErrUnavailable) {
		t.Errorf("Get after giving up: %v, want ErrUnavailable", g.Err)
	}
	if err := c.Close(); err == nil || !strings.Contains(err.Error(), "in doubt") {
		t.Errorf("Close: %v, want that memory is in doubt", err)
	}
	if err := a.Close(); !errors.Is(err, arena.ErrQuarantined) {
		t.Errorf("Close of the arena: %v, want ErrQuarantined", err)
	}
	if err := a.Detach(); err != nil {
		t.Errorf("Detach: %v", err)
	}
}

// A mooncake_client of another release is refused at the start, in words.
func TestWrongRelease(t *testing.T) {
	for _, tc := range []struct {
		layout *putLayout
		want   string
	}{
		{nil, "none of the known layouts"},
		{&putLayouts[3], "0.3.11 or newer"},
	} {
		f := startFake(t)
		f.layout = tc.layout
		a := newArena(t, 1<<20)
		_, err := Open(t.Context(), Config{Addr: f.addr, Logger: quiet}, a)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), f.addr) {
			t.Errorf("Open: %v, want %q and the address", err, tc.want)
		}
	}
	for i := range putLayouts[:3] {
		f := startFake(t)
		f.layout = &putLayouts[i]
		f.set(func(uint32, []string, [][]byte) []int64 { return []int64{0} })
		a := newArena(t, 1<<20)
		c := open(t, Config{Addr: f.addr}, a)
		mustPut(t, c, a, "k", 10, 1)
		if got := c.Stats().Release; got != putLayouts[i].release {
			t.Errorf("release %q, want %q", got, putLayouts[i].release)
		}
	}
}

// A mooncake_client that was replaced by another release is told of once, however often it is tried.
func TestWrongReleaseLater(t *testing.T) {
	f := startFake(t)
	var log logbook
	c := open(t, Config{Addr: f.addr, Logger: slog.New(&log), MaxBackoff: time.Millisecond, MinBackoff: time.Millisecond}, newArena(t, 1<<20))
	f.mu.Lock()
	f.layout = nil
	f.mu.Unlock()
	before := f.count(fnReady)
	f.drop()
	eventually(t, "it is tried again and again", func() bool { return f.count(fnReady) > before+5 })
	log.said(t, map[string]int{msgAway: 1, "mooncake: cannot join": 1})
	if _, err := exists(t, c, key(1)); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "known layouts") {
		t.Errorf("Exists: %v, want ErrUnavailable for the release", err)
	}
}

// A broken connection ends its calls, and the next one has a new identity.
func TestReconnect(t *testing.T) {
	f, c, read := startWithFake(t)
	f.set(func(uint32, []string, [][]byte) []int64 { return []int64{1} })
	_, before := c.current()
	f.drop()
	eventually(t, "the loss is noticed", func() bool { return c.Stats().Reconnects == 1 })
	eventually(t, "calls go through", func() bool { return read("k", 10).Err == nil })
	if _, after := c.current(); after == before || after.id == before.id {
		t.Error("the arena kept its identity over a reconnect")
	}
}

func TestForeignBuffer(t *testing.T) {
	_, c, _ := startWithFake(t)
	other := newArena(t, 1<<20)
	if err := put(t, c, other, "k", 100, 1); !errors.Is(err, store.ErrRejected) {
		t.Errorf("Put of a buffer of another arena: %v, want ErrRejected", err)
	}
}

func TestConfig(t *testing.T) {
	f := func(cfg Config, want string) {
		t.Helper()
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(Config{Addr: "nowhere"}, `"nowhere"`)
	f(Config{ReadConns: -1}, "-1 read")
	f(Config{WriteConns: 65}, "65 write")
	f(Config{CallTimeout: -1}, "CallTimeout")
	f(Config{MinBackoff: time.Minute}, "1m0s")
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

func TestCollector(t *testing.T) {
	f, c, read := startWithFake(t)
	f.set(func(uint32, []string, [][]byte) []int64 { return []int64{int64(codeNotFound)} })
	read("k", 10)
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, fam := range families {
		for _, m := range fam.Metric {
			for _, l := range m.Label {
				found[fam.GetName()+" "+l.GetValue()] = m.Counter.GetValue() == 1
			}
		}
	}
	for _, want := range []string{"afterimage_mooncake_codes_total -704", "afterimage_mooncake_calls_total get"} {
		if !found[want] {
			t.Errorf("no %s with value 1", want)
		}
	}
}
