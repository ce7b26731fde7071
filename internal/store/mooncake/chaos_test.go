// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/testkit"
)

// Two workers under load while their servers break in random order: nothing wrong is ever read, the
// workers always come back, and so does all memory.
func TestChaos(t *testing.T) {
	t.Parallel()
	rounds := 4
	if os.Getenv("AFTERIMAGE_SOAK") != "" {
		rounds = 60
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{ClientTTL: time.Second})
	const size = 256 << 10
	type worker struct {
		c    *Client
		idle func()
		good func() int64
		stop func()
	}
	workers := make([]worker, 2)
	for i := range workers {
		a := newArena(t, 16<<20)
		c := open(t, Config{Addr: m.Addr(), ClientTTL: time.Second}, a)
		good, stop := load(t, c, a, size)
		workers[i] = worker{c, func() { idle(t, a) }, good.Load, stop}
	}
	all := func(what string, ok func(worker) bool) {
		t.Helper()
		for _, w := range workers {
			eventually(t, what, func() bool { return ok(w) })
		}
	}
	faults := []struct {
		name        string
		cause, mend func()
		seen        func(Stats) bool
	}{
		{"mooncake_client is killed", m.Client.Kill, func() { m.Client.Start(); m.WaitClient() },
			func(s Stats) bool { return !s.Connected }},
		{"mooncake_client stands still", m.Client.Freeze, func() { m.Client.Signal(syscall.SIGCONT) },
			func(s Stats) bool { return s.BreakerOpen }},
		{"the master is killed", m.Master.Kill, func() { m.Master.Start(); m.WaitMaster() },
			func(s Stats) bool { return s.BreakerOpen }},
		{"the master stands still", m.Master.Freeze, func() { m.Master.Signal(syscall.SIGCONT) },
			func(s Stats) bool { return s.BreakerOpen }},
	}
	order := r.Perm(len(faults))
	for round := range rounds {
		f := faults[order[round%len(order)]]
		t.Log(f.name)
		f.cause()
		all(f.name+": it is noticed", func(w worker) bool { return f.seen(w.c.Stats()) })
		f.mend()
		before := make(map[*Client]int64)
		for _, w := range workers {
			before[w.c] = w.good()
		}
		all(f.name+": calls go well again", func(w worker) bool { return w.good() > before[w.c]+20 })
	}
	for _, w := range workers {
		w.stop()
		w.idle()
		if err := w.c.Err(); err != nil {
			t.Errorf("a client gave up: %v", err)
		}
	}
}
