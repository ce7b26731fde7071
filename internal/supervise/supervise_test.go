// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStartInOrderStopInReverse(t *testing.T) {
	s, w := supervisor(t, nil, fleet()...)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, st := range s.Status() {
		if st.State != Ready || st.PID == 0 || st.Address == "" || st.Model != "fake-ok" {
			t.Errorf("after Start: got %+v, want it ready with pid, address and model", st)
		}
		pids = append(pids, st.PID)
	}
	began := time.Now()
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("stop took %v, want at most 5 s", d)
	}
	for _, pid := range pids {
		gone(t, pid)
	}
	close(w.ch)
	var starts, stops []string
	for st := range w.ch {
		switch st.State {
		case Starting:
			if st.PID == 0 {
				starts = append(starts, st.Role)
			}
		case Stopped:
			stops = append(stops, st.Role)
		}
	}
	for _, order := range [][]string{starts, reversed(stops)} {
		if len(order) != 5 || order[0] != "store" || order[4] != "gateway" {
			t.Errorf("got order %v, want store first, gateway last", order)
		}
	}
}

func reversed(in []string) []string {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}

func TestKilledProcessComesBackOnItsPort(t *testing.T) {
	s, w := supervisor(t, nil, fake("store", 0, "ok"), fake("gateway", 1, "ok"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := s.Status()[1]
	for round := 1; round <= 3; round++ {
		_ = syscall.Kill(s.Status()[1].PID, syscall.SIGKILL)
		down := w.until("the gateway is down", is("gateway", Down))
		if !strings.Contains(down.Reason, "killed") || down.Restarts != round {
			t.Errorf("got %+v, want restart %d with the reason killed", down, round)
		}
		after := w.until("the gateway is back", is("gateway", Ready))
		if after.Address != before.Address || after.PID == before.PID {
			t.Errorf("got %s (pid %d), want %s and another pid than %d", after.Address, after.PID, before.Address, before.PID)
		}
	}
	if st := s.Status()[0]; st.Restarts != 0 {
		t.Errorf("the store was restarted %d times, want none", st.Restarts)
	}
}

func TestRefusalAtFirstStartFailsStart(t *testing.T) {
	s, _ := supervisor(t, nil, fake("store", 0, "ok"), fake("encoder-0", 1, "refuse"), fake("gateway", 2, "ok"))
	err := s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "encoder-0") || !strings.Contains(err.Error(), "give a file that is there") {
		t.Fatalf("got %v, want the encoder's own words", err)
	}
	all := s.Status()
	if all[1].State != Failed || all[1].Restarts != 0 || all[2].State != Waiting {
		t.Errorf("got %+v, want the encoder failed without a restart and the gateway waiting", all)
	}
}

// What a child tells is the error, word for word, and the child prints nothing.
func TestRefusalIsTold(t *testing.T) {
	s, w := supervisor(t, nil, fake("encoder-0", 0, "tell"), fake("encoder-1", 0, "tell"), fake("gateway", 1, "ok"))
	err := s.Start(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), ": model.path: no such file") {
		t.Errorf("got %v, want what the encoder told", err)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if got := w.out.String(); got != "" {
		t.Errorf("the children printed %q, want nothing", got)
	}
	if st := s.Status()[2]; st.State != Waiting {
		t.Errorf("got %+v, want the gateway never started", st)
	}
}

func TestCrashBeforeReadyIsTriedAgain(t *testing.T) {
	s, w := supervisor(t, nil, fake("store", 0, "crash"))
	result := make(chan error, 1)
	go func() { result <- s.Start(t.Context()) }()
	w.until("it crashed twice", func(st Status) bool { return st.Restarts == 2 })
	release(t, s)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

func release(t *testing.T, s *Supervisor) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.cfg.RunDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCrashLoopEndsAtTheTimeout(t *testing.T) {
	// Within this time a process has come to its crash, whatever else the machine does.
	s, _ := supervisor(t, func(c *Config) { c.StartTimeout = 2 * time.Second }, fake("store", 0, "crash"))
	err := s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "about to crash") {
		t.Fatalf("got %v, want the last words of the store", err)
	}
}

func TestSlowStartShowsItsReason(t *testing.T) {
	s, w := supervisor(t, nil, fake("prefill", 0, "slow"))
	result := make(chan error, 1)
	go func() { result <- s.Start(t.Context()) }()
	w.until("it says why", func(st Status) bool { return st.State == Loading && st.Reason == "reading weights" })
	release(t, s)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if st := s.Status()[0]; st.Reason != "" || st.State != Ready {
		t.Errorf("got %+v, want ready without a reason", st)
	}
}

func TestNotReadyInTime(t *testing.T) {
	f := func(mode, want string) {
		t.Helper()
		s, w := supervisor(t, func(c *Config) { c.StartTimeout = 50 * time.Millisecond }, fake("prefill", 0, mode))
		if err := s.Start(t.Context()); !errors.Is(err, errTimeout) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a timeout that says %q", mode, err, want)
		}
		_ = w.stop()
	}
	f("mute", "does not listen")
	f("slow", "")
}

func TestStartEndsWithItsContext(t *testing.T) {
	s, w := supervisor(t, nil, fake("prefill", 0, "slow"))
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Start(ctx) }()
	w.until("it loads", is("prefill", Loading))
	cause := errors.New("interrupted")
	cancel(cause)
	if err := <-result; !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func TestDeafChildIsKilled(t *testing.T) {
	s, w := supervisor(t, func(c *Config) { c.StopTimeout = 300 * time.Millisecond },
		fake("store", 0, "deaf"), fake("encoder-0", 1, "deaf"), fake("encoder-1", 1, "deaf"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := s.Status()
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		gone(t, st.PID)
	}
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	s, _ := supervisor(t, func(c *Config) { c.StopTimeout = time.Hour }, fake("store", 0, "deaf"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(now); err != nil {
		t.Error(err)
	}
	gone(t, s.Status()[0].PID)
}

func TestMissingBinary(t *testing.T) {
	s, _ := supervisor(t, func(c *Config) { c.Binary = "/does/not/exist" }, fake("store", 0, "ok"))
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("got %v, want the path of the binary", err)
	}
}

func TestLogDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	s, w := supervisor(t, func(c *Config) { c.LogDir = dir }, fake("store", 0, "ok"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = w.stop()
	got, err := os.ReadFile(filepath.Join(dir, "store.log"))
	if err != nil || string(got) != "got interrupt\n" {
		t.Errorf("got log %q (%v), want what the store printed", got, err)
	}
}

// A kill that the supervisor cannot see coming leaves no process and no run directory.
func TestKilledSupervisorLeavesNothing(t *testing.T) {
	cmd, dir, all, log := startUp(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, st := range all {
		gone(t, st.PID)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the run directory is there: %v\n%s", err, log)
	}
}

// Ctrl-C goes to the process group of the terminal: the supervisor gets it, the roles do not.
func TestCtrlCReachesTheSupervisorAlone(t *testing.T) {
	cmd, dir, all, log := startUp(t)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the supervisor: %v", err)
	}
	for _, st := range all {
		gone(t, st.PID)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the run directory is there: %v", err)
	}
	got := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(got) != 5 || got[0] != "gateway   | got interrupt" || got[4] != "store     | got interrupt" {
		t.Errorf("got %q, want five roles that got one signal each, the gateway first, the store last", got)
	}
}
