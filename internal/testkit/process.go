// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program that a test runs, stops and starts again. It never outlives the test binary,
// however that ends: the kernel kills it with the thread that started it.
type Process struct {
	t    testing.TB
	name string
	log  string // file that takes stdout and stderr
	make func() *exec.Cmd

	mu   sync.Mutex // guards the fields below
	cmd  *exec.Cmd  // nil when it does not run
	done chan struct{}
}

// StartProcess runs what newCmd makes; it is asked anew at each Start. The end of the test kills the
// process, and its output is shown when the test failed.
func StartProcess(t testing.TB, name string, newCmd func() *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, name: name, make: newCmd, log: filepath.Join(t.TempDir(), name+".log")}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("end of the output of %s:\n%s", name, p.Tail(4<<10))
		}
	})
	p.Start()
	return p
}

// Start runs the process again after Kill.
func (p *Process) Start() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.t.Fatalf("%s runs already", p.name)
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	cmd := p.make()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.Dir == "" {
		cmd.Dir = filepath.Dir(p.log) // what it writes unasked goes with the test
	}
	// A group of its own, so that Kill reaches children too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.done = make(chan struct{})
	started := make(chan error)
	go func() {
		// Pdeathsig fires when the starting thread ends, so that thread waits here.
		runtime.LockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed, as a rule
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	p.cmd = cmd
}

// Pid returns the process id, or 0 when it does not run.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Kill ends the process and its children at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	select {
	case <-p.done: // its id may be another's by now
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // gone already, if it fails
		<-p.done
	}
	p.cmd = nil
}

// Freeze stops the process (SIGSTOP) and returns once all of its threads stand still; SIGCONT lets it go on.
func (p *Process) Freeze() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	tasks := fmt.Sprintf("/proc/%d/task/*/stat", p.Pid())
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		moving := false
		files, _ := filepath.Glob(tasks)
		for _, file := range files {
			if stat, err := os.ReadFile(file); err == nil { // else the thread has ended
				state := stat[bytes.LastIndexByte(stat, ')')+2]
				moving = moving || state != 'T'
			}
		}
		switch {
		case !moving && len(files) > 0:
			return
		case time.Now().After(end):
			p.t.Fatalf("%s does not stand still", p.name)
		}
	}
}

// Signal sends sig to the process itself, such as SIGSTOP and SIGCONT.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(p.Pid(), sig); err != nil {
		p.t.Fatalf("signal %v to %s: %v", sig, p.name, err)
	}
}

// Done is closed when the running process has ended.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Tail returns the last n bytes of the output.
func (p *Process) Tail(n int) string {
	out, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return string(bytes.TrimSpace(out[max(0, len(out)-n):]))
}
