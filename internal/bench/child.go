// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long a child may take.
const (
	startTimeout = 2 * time.Minute  // to be ready; a cold disk reads a model slowly
	stopTimeout  = 10 * time.Second // to end when asked to; then it is killed
)

// tailLines is how much of a child's output is kept for the error when it fails.
const tailLines = 20

// child is a process that a benchmark has started.
type child struct {
	name   string
	cmd    *exec.Cmd
	ready  chan struct{} // closed at the line that seen took for "ready"
	exited chan struct{} // closed after the process has ended and all its output was read
	status error         // of the process; valid after exited

	mu   sync.Mutex // guards tail
	tail []string
}

// startChild runs binary. Each line that it writes goes to seen until seen returns true, which means
// that the child is ready.
//
// The child has a process group of its own, so that Ctrl-C reaches the benchmark alone, which stops
// its children in order. If the benchmark is killed, the kernel interrupts them.
func startChild(name, binary string, args, env []string, seen func(line string) bool) (*child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &child{name: name, cmd: exec.Command(binary, args...), ready: make(chan struct{}), exited: make(chan struct{})}
	c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = env, w, w
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	err = c.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("bench: cannot start %s: %w", name, err)
	}
	go c.watch(r, seen)
	return c, nil
}

// watch reads what the child writes and then waits for its end.
func (c *child) watch(r *os.File, seen func(string) bool) {
	defer close(c.exited)
	defer r.Close()
	ready := false
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		c.mu.Lock()
		c.tail = append(c.tail[max(0, len(c.tail)-tailLines+1):], line)
		c.mu.Unlock()
		if !ready && seen(line) {
			ready = true
			close(c.ready)
		}
	}
	c.status = c.cmd.Wait()
}

// await waits until the child is ready.
func (c *child) await(ctx context.Context) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-c.ready:
		return nil
	case <-c.exited:
		return fmt.Errorf("bench: %s ended before it was ready (%v); its last lines:\n%s", c.name, c.status, c.lastLines())
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return fmt.Errorf("bench: %s was not ready within %v; its last lines:\n%s", c.name, startTimeout, c.lastLines())
	}
}

func (c *child) lastLines() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.tail, "\n")
}

// stop interrupts the child and waits for its end.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGINT)
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-c.exited:
	case <-timeout.C:
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
}
