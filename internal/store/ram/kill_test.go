// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// The tests of this file kill processes. The test binary plays their parts: roleEnv says which.
const (
	roleEnv = "AFTERIMAGE_TEST_ROLE"
	pathEnv = "AFTERIMAGE_TEST_SOCKET"

	killStore = 4 * mib
	killArena = 8 * mib
	killKeys  = 24 // of 64 to 685 KiB: more than twice what the Store holds
)

// rounds is how often a part is killed.
func rounds() int {
	if os.Getenv("AFTERIMAGE_SOAK") == "1" {
		return 200
	}
	return 5
}

// load uses a Store as a worker does, and checks every byte it reads.
type load struct {
	c       *Client
	a       *arena.Arena
	wrong   atomic.Pointer[string]
	hits    atomic.Int64
	puts    atomic.Int64
	slowest atomic.Int64 // call, in ns
}

func keyAndSize(i int) (embedding.Key, int) {
	return embedding.Key(fmt.Sprintf("kill@id:%d", i)), 64<<10 + i*(27<<10)
}

// write fills p with what only key i has.
func write(p []byte, i int) {
	for o := 0; o+8 <= len(p); o += 8 {
		binary.LittleEndian.PutUint64(p[o:], uint64(i)<<40|uint64(o))
	}
}

// check returns where p is not what write made.
func check(p []byte, i int) int {
	for o := 0; o+8 <= len(p); o += 8 {
		if binary.LittleEndian.Uint64(p[o:]) != uint64(i)<<40|uint64(o) {
			return o
		}
	}
	return -1
}

func (l *load) fault(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	l.wrong.CompareAndSwap(nil, &s)
}

func (l *load) timed(f func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	start := time.Now()
	f(ctx)
	if d := int64(time.Since(start)); d > l.slowest.Load() {
		l.slowest.Store(d)
	}
}

// read gets some objects, holds what it held before, and checks both.
func (l *load) read(hs []held, rng *rand.Rand) []held {
	wants, is := make([]store.Want, 3), make([]int, 3)
	for j := range wants {
		is[j] = rng.IntN(killKeys)
		k, n := keyAndSize(is[j])
		wants[j] = store.Want{Key: k, Bytes: n, Exact: true}
	}
	l.timed(func(ctx context.Context) {
		for j, g := range l.c.Get(ctx, wants) {
			if g.Buf != nil {
				l.hits.Add(1)
				hs = append(hs, held{g.Buf, is[j]})
			}
		}
	})
	for len(hs) > 4 {
		hs[0].verify(l)
		hs[0].buf.Release()
		hs = hs[1:]
	}
	return hs
}

type held struct {
	buf *arena.Buf
	i   int
}

func (h held) verify(l *load) {
	if at := check(h.buf.Bytes(), h.i); at >= 0 {
		l.fault("object %d (on loan: %v): byte %d is wrong", h.i, h.buf.Foreign(), at)
	}
}

// put stores one object.
func (l *load) put(rng *rand.Rand) {
	i := rng.IntN(killKeys)
	k, n := keyAndSize(i)
	b, err := l.a.Reserve(n)
	if err != nil {
		return
	}
	write(b.Bytes(), i)
	b.Commit()
	l.timed(func(ctx context.Context) {
		if l.c.Put(ctx, k, b, store.PutOptions{SoftPin: i%5 == 0, Tenant: fmt.Sprint(i % 3)}) == nil {
			l.puts.Add(1)
		}
	})
	write(b.Bytes(), i+1000) // the next one's
	b.Release()
}

// run reads and writes until ctx ends.
func (l *load) run(ctx context.Context, reads, writes int) {
	var wg sync.WaitGroup
	for w := range reads {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			var hs []held
			for ctx.Err() == nil {
				hs = l.read(hs, rng)
			}
			for _, h := range hs {
				h.verify(l)
				h.buf.Release()
			}
		})
	}
	for w := range writes {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for ctx.Err() == nil {
				l.put(rng)
			}
		})
	}
	wg.Wait()
}

// playRole does the part of a process that will be killed, and never returns from one.
func playRole(role string) {
	path := os.Getenv(pathEnv)
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
	if role == "store" {
		srv, err := NewServer(Config{MaxBytes: killStore, Mapped: true, Logger: quiet})
		if err != nil {
			fail(err)
		}
		ln, err := Listen(path)
		if err != nil {
			fail(err)
		}
		fmt.Println("busy")
		fail(srv.Serve(context.Background(), ln))
	}
	a, err := arena.New(arena.Config{Name: role, Bytes: killArena, Mapped: true})
	if err != nil {
		fail(err)
	}
	c, err := Dial(context.Background(), ClientConfig{Path: path, Arena: a})
	if err != nil {
		fail(err)
	}
	l := &load{c: c, a: a}
	go func() {
		for l.hits.Load()+l.puts.Load() < 20 {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("busy")
	}()
	if role == "reader" {
		l.run(context.Background(), 2, 0)
	}
	l.run(context.Background(), 0, 2)
}

// start runs a part and waits until it is busy.
func start(t *testing.T, role, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role, pathEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "busy\n" {
		t.Fatalf("%s says %q, %v", role, line, err)
	}
	return cmd
}

// kill ends a part without warning, some way into its work.
func kill(t *testing.T, cmd *exec.Cmd, rng *rand.Rand) {
	t.Helper()
	for range rng.IntN(2_000_000) { // up to some ms, of no fixed length
		_ = rng.Uint64()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
}

// background starts a load of this process, and returns how to end it; then no byte may be wrong, no
// call may have been stuck, and no byte be left.
func background(t *testing.T, path string) (l *load, end func()) {
	t.Helper()
	a := newMapped(t, killArena)
	c := dial(t, ClientConfig{Path: path, Arena: a, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	l = &load{c: c, a: a}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx, 2, 1)
	}()
	return l, func() {
		t.Helper()
		cancel()
		<-done
		if w := l.wrong.Load(); w != nil {
			t.Error(*w)
		}
		if d := time.Duration(l.slowest.Load()); d > 15*time.Second {
			t.Errorf("a call took %v", d)
		}
		if st := a.Stats(); st.Reserved+st.Committed != 0 {
			t.Errorf("left in the arena: %+v", st)
		}
		if st := c.Stats(); st.Loans != 0 || st.Pinned == 0 {
			t.Errorf("%+v, want no loans left, and some that were pinned", st)
		}
	}
}

// C02, C11: whoever dies, reading on loan or in the middle of a PUT, leaves nothing behind in the Store
// and costs the others nothing.
func TestKillClients(t *testing.T) {
	for _, role := range []string{"reader", "writer"} {
		t.Run(role, func(t *testing.T) {
			path := socket(t)
			srv, _ := serve(t, path, Config{MaxBytes: killStore, Mapped: true})
			l, end := background(t, path)
			rng := rand.New(rand.NewPCG(1, 9))
			for range rounds() {
				kill(t, start(t, role, path), rng)
			}
			before := l.hits.Load()
			eventually(t, "hits after the last kill", func() bool { return l.hits.Load() > before })
			end()
			eventually(t, "everything of the dead to come back", func() bool {
				st := srv.Stats()
				return st.Loans == 0 && st.LoanBytes == 0 && st.ReadingBytes == 0 && st.UploadBytes == 0
			})
			srv.mu.Lock()
			borrowers := len(srv.borrowers)
			srv.mu.Unlock()
			if borrowers != 1 {
				t.Errorf("%d borrowers, want the load alone", borrowers)
			}
		})
	}
}

// G03: a Store that dies under load is a miss, never other bytes, and its loans stay good.
func TestKillStore(t *testing.T) {
	path := socket(t)
	cmd := start(t, "store", path)
	l, end := background(t, path)
	rng := rand.New(rand.NewPCG(1, 8))
	for range rounds() {
		before := l.hits.Load()
		eventually(t, "hits", func() bool { return l.hits.Load() > before+10 })
		kill(t, cmd, rng)
		cmd = start(t, "store", path)
	}
	before := l.hits.Load()
	eventually(t, "hits after the last kill", func() bool { return l.hits.Load() > before })
	end()
	if got := l.c.Stats().Restarts; got != uint64(rounds()) {
		t.Errorf("%d restarts seen, want %d", got, rounds())
	}
	if _, err := l.c.Exists(t.Context(), []embedding.Key{"k"}); errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the Store is not back: %v", err)
	}
}
