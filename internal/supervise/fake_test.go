// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"afterimage/internal/ports"
)

// The test binary plays the roles too: with envFake set it is a fake role, or a fake `up` over fake
// roles, and not a test.
const (
	envFake   = "FAKE_ROLE"   // its behaviour
	envListen = "FAKE_LISTEN" // where to listen; empty for any port

	// quickExit keeps a child under the race detector from sleeping a second before it exits.
	quickExit = "GORACE=atexit_sleep_ms=0"
)

func TestMain(m *testing.M) {
	switch mode := os.Getenv(envFake); mode {
	case "":
		goleak.VerifyTestMain(m)
	case "up":
		os.Exit(fakeUp())
	case "foreign":
		os.Exit(fakeForeign())
	default:
		os.Exit(fakeRole(mode))
	}
}

// fakeRole behaves as mode says:
//
//	ok        gets ready
//	slow      is unready with a reason until the file <rundir>/go is there
//	refuse    exits with status 2 and a message
//	tell      tells the supervisor why it refuses
//	crash     kills itself before it listens, until <rundir>/go is there
//	deaf      ignores SIGTERM
//	mute      never listens
//	sick      must be restarted once <rundir>/go is there, which it removes as it stops
//	sick and deaf
func fakeRole(mode string) int {
	ctx, stop := Lifeline(context.Background())
	defer stop()
	runDir := os.Getenv(EnvRunDir)
	released := func() bool {
		_, err := os.Stat(filepath.Join(runDir, "go"))
		return err == nil
	}
	sigs := make(chan os.Signal, 2)
	signal.Notify(sigs, syscall.SIGTERM, syscall.SIGINT)
	switch {
	case mode == "refuse":
		fmt.Fprintln(os.Stderr, "fake: model.path: no such file; give a file that is there")
		return 2
	case mode == "tell":
		if !Refuse(errors.New("model.path: no such file")) {
			fmt.Fprintln(os.Stderr, "fake: there is nobody to tell")
		}
		return 1
	case mode == "crash" && !released():
		fmt.Fprintln(os.Stderr, "fake: about to crash")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if mode != "mute" {
		address := os.Getenv(envListen)
		if address == "" {
			address = "127.0.0.1:0"
		}
		ln, err := net.Listen("tcp", address)
		if err != nil {
			fmt.Fprintln(os.Stderr, "fake:", err)
			return 1
		}
		go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if mode == "slow" && !released() {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintln(w, `{"reason":"reading weights"}`)
			}
			if strings.HasPrefix(mode, "sick") && r.URL.Path == "/livez" && released() {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintln(w, `{"reason":"lost its Store"}`)
			}
		}))
		if err := Notify(Listening{Listen: ln.Addr().String(), Model: "fake-" + mode}); err != nil {
			fmt.Fprintln(os.Stderr, "fake:", err)
			return 1
		}
	}
	for {
		select {
		case sig := <-sigs:
			fmt.Fprintln(os.Stderr, "got", sig)
			if strings.HasPrefix(mode, "sick") {
				_ = os.Remove(filepath.Join(runDir, "go"))
			}
			if !strings.HasSuffix(mode, "deaf") {
				return 0
			}
		case <-ctx.Done():
			fmt.Fprintln(os.Stderr, "orphaned")
			return 0
		}
	}
}

// fakeForeign is a program that knows nothing of a supervisor. It ends with a message where it cannot
// listen.
func fakeForeign() int {
	if os.Getenv(EnvLifeline)+os.Getenv(EnvNotify) != "" {
		fmt.Fprintln(os.Stderr, "foreign: was told of pipes")
		return 1
	}
	ln, err := net.Listen("tcp", os.Getenv(envListen))
	if err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		return 1
	}
	for {
		conn, err := ln.Accept()
		if err != nil {
			return 1
		}
		conn.Close()
	}
}

// foreign is a Spec of a foreign program at an address.
func foreign(name string, stage int, address string) Spec {
	return Spec{Name: name, Role: name, Stage: stage, Program: os.Args[0], Address: address,
		Command: func(Known) (args, env []string) {
			return nil, []string{envFake + "=foreign", envListen + "=" + address, quickExit}
		}}
}

// freeAddress returns one of loopback that nobody listens on.
func freeAddress() string {
	at, err := ports.Address()
	if err != nil {
		panic(err)
	}
	return at
}

// fakeUp supervises fake roles and a foreign program until a signal comes. It prints a line of JSON when all are ready.
func fakeUp() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := MakeRunDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s, err := New(Config{Binary: os.Args[0], RunDir: dir, Logs: os.Stderr,
		Specs: append([]Spec{foreign("foreign", 0, freeAddress())}, fleet()...)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Stop(context.Background())
	if err := s.Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"dir": dir, "status": s.Status()})
	<-ctx.Done()
	return 0
}

// fake is a Spec of a fake role in a stage.
func fake(name string, stage int, mode string) Spec {
	return Spec{Name: name, Role: name, Stage: stage, Command: func(known Known) (args, env []string) {
		return nil, []string{envFake + "=" + mode, envListen + "=" + known[name].Listen, quickExit}
	}}
}

// fleet is the shape of a real fleet.
func fleet() []Spec {
	return []Spec{fake("store", 0, "ok"), fake("encoder-0", 1, "ok"), fake("encoder-1", 1, "ok"),
		fake("prefill", 1, "ok"), fake("gateway", 2, "ok")}
}

// output collects what the children print.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) { o.mu.Lock(); defer o.mu.Unlock(); return o.b.Write(p) }
func (o *output) String() string              { o.mu.Lock(); defer o.mu.Unlock(); return o.b.String() }

// supervisor makes one over specs whose changes and output a test can watch. It is stopped with the
// test.
func supervisor(t *testing.T, edit func(*Config), specs ...Spec) (*Supervisor, *watch) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir, err := MakeRunDir()
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t: t, ch: make(chan Status, 1000)}
	cfg := Config{Binary: os.Args[0], Specs: specs, RunDir: dir, Logs: &w.out,
		BackoffMin: 10 * time.Millisecond, BackoffMax: 40 * time.Millisecond,
		OnChange: func(st Status) { w.ch <- st }}
	if edit != nil {
		edit(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.stop = sync.OnceValue(func() error { return s.Stop(context.Background()) })
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the run directory is there after Stop: %v", err)
		}
		if t.Failed() {
			t.Logf("output of the children:\n%s", w.out.String())
		}
	})
	return s, w
}

// watch sees what a Supervisor does.
type watch struct {
	t    *testing.T
	ch   chan Status
	out  output
	stop func() error
}

// until returns the first change that ok accepts.
func (w *watch) until(what string, ok func(Status) bool) Status {
	w.t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case st := <-w.ch:
			if st.State == Ready && st.PID == 0 {
				w.t.Errorf("%s is told to be ready without a process", st.Name)
			}
			if ok(st) {
				return st
			}
		case <-timeout:
			w.t.Fatalf("waited too long until %s", what)
		}
	}
}

// is accepts a process in a state.
func is(name string, state State) func(Status) bool {
	return func(st Status) bool { return st.Name == name && st.State == state }
}

// gone waits until process pid has ended, be it reaped or not.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return
		}
		// The state follows the name, which is in parentheses.
		if _, after, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(after, "Z") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there: %s", pid, stat)
		}
		time.Sleep(5 * time.Millisecond) // the poll of a condition
	}
}

// startUp runs the fake `up` in a process group of its own.
func startUp(t *testing.T) (cmd *exec.Cmd, dir string, all []Status, log *output) {
	t.Helper()
	log = &output{}
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envFake+"=up", quickExit, "XDG_RUNTIME_DIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = log
	cmd.WaitDelay = 10 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var up struct {
		Dir    string
		Status []Status
	}
	if err := json.NewDecoder(stdout).Decode(&up); err != nil {
		t.Fatalf("the fake up did not start: %v\n%s", err, log)
	}
	return cmd, up.Dir, up.Status, log
}
