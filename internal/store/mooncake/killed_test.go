// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/testkit"
)

// envWorker makes the test binary play a worker: it joins the mooncake_client of that address and then
// waits to be killed.
const envWorker = "AFTERIMAGE_TEST_MOONCAKE_WORKER"

const workerArena = "test-worker-arena"

func playWorker(addr string) error {
	a, err := arena.New(arena.Config{Name: workerArena, Bytes: 64 << 20})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // should nobody kill it
	defer cancel()
	c, err := Open(ctx, Config{Addr: addr, Logger: quiet}, a)
	if err != nil {
		return err
	}
	if err := c.Wait(ctx); err != nil {
		return err
	}
	fmt.Fprintln(os.NewFile(3, "ready"), "ready")
	<-ctx.Done()
	return ctx.Err()
}

// A worker that is killed leaves nothing behind: mooncake_client drops its arena 10 s after the last
// heartbeat.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	maps := fmt.Sprintf("/proc/%d/maps", m.Client.Pid())
	// With the race detector arenas are Go's memory, and what is mapped has another name.
	mapped := func() int {
		text, err := os.ReadFile(maps)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), workerArena) + strings.Count(string(text), "afterimage-bounce")
	}
	a := newArena(t, 16<<20)
	c := open(t, Config{Addr: m.Addr()}, a)
	good, stop := load(t, c, a, 1<<20)
	others := mapped()
	ready, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	killed := testkit.StartProcess(t, "worker", func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envWorker+"="+m.Addr())
		cmd.ExtraFiles = []*os.File{wr}
		return cmd
	})
	wr.Close()
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the worker says %q, %v: %s", line, err, killed.Tail(1000))
	}
	if mapped() != others+1 {
		t.Fatalf("%d arenas of workers are mapped, want %d", mapped(), others+1)
	}
	killed.Signal(syscall.SIGKILL)
	eventually(t, "the arena of the dead worker is unmapped", func() bool { return mapped() == others })
	before := good.Load()
	eventually(t, "another worker goes on", func() bool { return good.Load() > before+20 })
	stop()
	if st := c.Stats(); st.Reconnects != 0 || st.Quarantined != 0 {
		t.Errorf("the other worker has %d reconnects and %d ranges in doubt, want none", st.Reconnects, st.Quarantined)
	}
}

// A worker whose heartbeats stopped beyond the lease of its mapping goes on as if nothing had been.
func TestHeartbeatsStop(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	a := newArena(t, 4<<20)
	var log logbook
	c := open(t, Config{Addr: m.Addr(), Logger: slog.New(&log)}, a)
	mustPut(t, c, a, key(1), 1000, 1)
	c.mute.Store(true)
	l, s := c.current()
	eventually(t, "the mapping expires", func() bool {
		mapped, err := l.read().mapped(t.Context(), c.win.base, s.id)
		return err == nil && !mapped
	})
	c.mute.Store(false)
	if err := get(t, c, key(1), 1000, 1); err != nil {
		t.Errorf("Get after the mapping expired: %v", err)
	}
	if st := c.Stats(); st.Rotations != 1 {
		t.Errorf("%d rotations, want 1", st.Rotations)
	}
	log.said(t, map[string]int{"mooncake: mooncake_client dropped the arena; handing it over again": 1})
}
