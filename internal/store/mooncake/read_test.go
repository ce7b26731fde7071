// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// Small reads of known size go in the short way, on a connection for writes while none is on it; all others, and
// those of a server that does not know it, do not.
func TestInlineReads(t *testing.T) {
	f, c, _ := startWithFake(t)
	entered, release := make(chan struct{}), make(chan struct{})
	f.set(func(fn uint32, keys []string, mem [][]byte) []int64 {
		if fn == fnPut {
			close(entered)
			<-release
			return []int64{0}
		}
		sizes := make([]int64, len(mem))
		for i := range sizes {
			sizes[i] = int64(len(mem[i]))
		}
		return sizes
	})
	want := func(what string, inline, other int, wants ...store.Want) {
		t.Helper()
		in, out := f.count(fnGetInline), f.count(fnGet)
		for _, g := range c.Get(t.Context(), wants) {
			if g.Err != nil {
				t.Errorf("%s: %v", what, g.Err)
				continue
			}
			g.Buf.Release()
		}
		if in, out = f.count(fnGetInline)-in, f.count(fnGet)-out; in != inline || out != other {
			t.Errorf("%s: %d calls in the short way and %d others, want %d and %d", what, in, out, inline, other)
		}
	}
	exact := func(k embedding.Key, n int) store.Want { return store.Want{Key: k, Bytes: n, Exact: true} }
	want("small ones", 1, 0, exact("a", 10), exact("b", inlineBytes-10))
	want("too many bytes", 0, 1, exact("a", 10), exact("b", inlineBytes-9))
	want("of another size, maybe", 0, 1, exact("a", 10), store.Want{Key: "b", Bytes: 10})
	want("one key twice", 1, 0, exact("a", 10), exact("a", 10))

	stored := make(chan error)
	go func() { stored <- put(t, c, c.arena, "k", 100, 1) }()
	<-entered
	want("beside a PUT", 0, 1, exact("a", 10))
	close(release)
	if err := <-stored; err != nil {
		t.Errorf("Put: %v", err)
	}

	f.mu.Lock()
	f.noInline = true
	f.mu.Unlock()
	want("at a server without it", 1, 1, exact("a", 10))
	want("and again", 0, 1, exact("a", 10))
}

// A key that is asked for in two sizes has none that is known.
func TestInlineSizesDiffer(t *testing.T) {
	f, c, _ := startWithFake(t)
	f.set(func(_ uint32, _ []string, mem [][]byte) []int64 { return []int64{10} })
	for _, sizes := range [][]int{{10, 20}, {20, 10}} {
		gots := c.Get(t.Context(), []store.Want{{Key: "a", Bytes: sizes[0], Exact: true}, {Key: "a", Bytes: sizes[1], Exact: true}})
		for i, g := range gots {
			if g.Buf != nil {
				g.Buf.Release()
			}
			if fits := sizes[i] == 10; fits != (g.Err == nil) || !fits && !errors.Is(g.Err, store.ErrRejected) {
				t.Errorf("10 bytes for %d: %v", sizes[i], g.Err)
			}
		}
	}
	if n := f.count(fnGetInline); n != 0 {
		t.Errorf("%d calls in the short way, want none", n)
	}
}

// A transfer of the short way that fails is in doubt, unless the object turns out to be of another size: then nothing
// was transferred, and only its memory is held, for a moment.
func TestInlineFails(t *testing.T) {
	for _, tc := range []struct {
		size  byte
		class error
	}{{100, store.ErrUnconfirmed}, {0, store.ErrUnconfirmed}, {99, store.ErrRejected}} {
		f, c, _ := startWithFake(t)
		f.mu.Lock()
		f.size = tc.size
		f.mu.Unlock()
		f.set(func(uint32, []string, [][]byte) []int64 { return []int64{int64(codeTransferFailed)} })
		g := c.Get(t.Context(), []store.Want{{Key: "k", Bytes: 100, Exact: true}})[0]
		if !errors.Is(g.Err, tc.class) || f.count(fnGetInline) != 1 || f.count(fnGet) != 0 {
			t.Errorf("size %d: %v, want %v by the short way", tc.size, g.Err, tc.class)
		}
		doubt := tc.class == store.ErrUnconfirmed
		if st := c.Stats(); st.Quarantined != 1 || c.wary.has("k") != doubt {
			t.Errorf("size %d: %d ranges were held, distrusted: %v, want 1 and %v", tc.size, st.Quarantined, c.wary.has("k"), doubt)
		}
		idle(t, c.arena)
	}
}

// What the short way answers at a real server is what the other one does, whatever is there.
func TestInlineAnswers(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{SegmentBytes: -1})
	m.AddNode(64 << 20)
	a := newArena(t, 16<<20)
	var log logbook
	c := open(t, Config{Addr: m.Addr(), Logger: slog.New(&log)}, a)
	const size = 1 << 20
	eventually(t, "the segment is mounted", func() bool { return put(t, c, a, key(1), size, 1) == nil })
	for _, exact := range []bool{true, false} {
		gots := c.Get(t.Context(), []store.Want{
			{Key: key(1), Bytes: size, Exact: exact}, {Key: key(2), Bytes: 100, Exact: exact},
		})
		if gots[0].Err != nil || !errors.Is(gots[1].Err, store.ErrMiss) {
			t.Errorf("exact %v: %v and %v, want an object and a miss", exact, gots[0].Err, gots[1].Err)
		}
		if gots[0].Buf != nil {
			gots[0].Buf.Release()
		}
	}
	l, _ := c.current()
	for _, n := range []int{size - 1, size + 1} { // alone: a call of both would be refused as a whole
		if l.noInline.Load() {
			t.Error("the short way is given up")
		}
		g := c.Get(t.Context(), []store.Want{{Key: key(1), Bytes: n, Exact: true}})[0]
		if !errors.Is(g.Err, store.ErrRejected) {
			t.Errorf("%d bytes for %d: %v, want ErrRejected", size, n, g.Err)
		}
	}
	if !l.noInline.Load() || c.Stats().Distrusted != 0 {
		t.Errorf("the short way is kept: %v, %d keys are distrusted, want neither", !l.noInline.Load(), c.Stats().Distrusted)
	}
	idle(t, a)
	log.said(t, map[string]int{})
}

// A reading in the short way that takes longer than its lease is made again, and the server lets go of the memory
// only after it.
func TestInlineMeetsSlowNode(t *testing.T) {
	t.Parallel()
	const size, lease = 1 << 20, 200 * time.Millisecond
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{SegmentBytes: -1, LeaseTTL: lease})
	node, _ := m.AddNode(64 << 20)
	a := newArena(t, 16<<20)
	c := open(t, Config{Addr: m.Addr(), WriteConns: 2}, a)
	eventually(t, "the segment is mounted", func() bool { return put(t, c, a, key(1), size, 1) == nil })
	l, _ := c.current()
	other, err := l.openSession(t.Context(), c.cfg, c.win) // whatever is withdrawn, the server waits for all readings
	if err != nil {
		t.Fatal(err)
	}
	defer other.proc.close()
	const asked = "master_batch_get_replica_list_requests_total"
	before := m.Metric(asked)
	node.Freeze()
	read := make(chan error)
	go func() { read <- get(t, c, key(1), size, 1) }()
	eventually(t, "the reading is under way", func() bool { return m.Metric(asked) > before })
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), lease)
	defer cancel()
	if r, err := l.writes[1].unmap(ctx, other.id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a mapping is withdrawn under a reading: %v, %v", r.code, err)
	}
	eventually(t, "the lease ends", func() bool { return time.Since(start) > 2*lease })
	node.Signal(syscall.SIGCONT)
	if err := <-read; err != nil {
		t.Errorf("Get: %v", err)
	}
	if n := c.Stats().Codes[int32(codeLeaseExpired)]; n != 1 {
		t.Errorf("%d readings met the end of their lease, want 1", n)
	}
	idle(t, a)
}
