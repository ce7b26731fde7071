// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// script starts a shell as a child that is ready at the line "ready".
func script(t *testing.T, text string) *child {
	t.Helper()
	c, err := startChild("script", "/bin/sh", []string{"-c", text}, os.Environ(), func(line string) bool { return line == "ready" })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChildIsReadyAndStops(t *testing.T) {
	c := script(t, `trap 'echo bye; exit 0' INT; echo one; echo ready >&2; while :; do sleep 0.01; done`)
	if err := c.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.stop()
	if c.status != nil || !strings.HasSuffix(c.lastLines(), "ready\nbye") {
		t.Errorf("status %v, lines %q; want an orderly end", c.status, c.lastLines())
	}
}

func TestChildThatFailsTellsWhy(t *testing.T) {
	c := script(t, `i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done; echo no model >&2; exit 2`)
	err := c.await(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.HasSuffix(err.Error(), "line 49\nno model") {
		t.Errorf("got %v, want the status and the last lines", err)
	}
	if n := strings.Count(err.Error(), "\n"); n != tailLines {
		t.Errorf("%d lines of output, want %d", n, tailLines)
	}
	c.stop()
}

func TestChildWaitEndsWithItsContext(t *testing.T) {
	c := script(t, `exec sleep 60`)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("told to stop")
	cancel(stop)
	if err := c.await(ctx); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause of the context", err)
	}
	c.stop()
	if c.status == nil {
		t.Error("the child was not interrupted")
	}
}

func TestStartChildThatIsNotThere(t *testing.T) {
	if _, err := startChild("role", "/nonexistent/afterimage", nil, nil, nil); err == nil || !strings.Contains(err.Error(), "role") {
		t.Errorf("got %v, want an error that names the child", err)
	}
}

func TestLauncherLeavesConfigurationOut(t *testing.T) {
	l := newLauncher("b", []string{"PATH=/bin", "AFTERIMAGE_ENGINE_THREADS=8", "AFTERIMAGE_ENGINE_DIR=/lib"})
	if got := strings.Join(l.env, " "); got != "PATH=/bin AFTERIMAGE_ENGINE_DIR=/lib" {
		t.Errorf("environment %q", got)
	}
}

// The table is that of package supervise, the ready line that of package cli: a fleet that says them
// is understood.
func TestUpReadsTheTable(t *testing.T) {
	up := launcher{binary: writeScript(t, `trap 'exit 0' INT
echo 'ROLE       ADDRESS          PID    MODEL            STATE'
echo 'gateway   | time=2026 level=INFO msg=listening address=127.0.0.1:9' >&2
echo 'gateway    127.0.0.1:41977  19508  -                ready'
echo 'afterimage is ready'
while :; do sleep 0.01; done`), env: os.Environ()}
	f, err := up.up(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	if f.url != "http://127.0.0.1:41977" || f.pid != 19508 || f.readyAfter <= 0 {
		t.Errorf("gateway %s, pid %d, ready after %v", f.url, f.pid, f.readyAfter)
	}
}

func TestUpWithoutAGateway(t *testing.T) {
	up := launcher{binary: writeScript(t, "trap 'exit 0' INT\necho 'afterimage is ready'\nwhile :; do sleep 0.01; done"), env: os.Environ()}
	if _, err := up.up(t.Context()); err == nil || !strings.Contains(err.Error(), "no line of a gateway") {
		t.Errorf("got %v", err)
	}
}

// writeScript makes a shell script that takes any arguments, and returns its path.
func writeScript(t *testing.T, text string) string {
	t.Helper()
	path := t.TempDir() + "/script"
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPoll(t *testing.T) {
	n := 0
	if err := poll(t.Context(), "three", func() (bool, error) { n++; return n == 3, nil }); err != nil || n != 3 {
		t.Errorf("%d questions, error %v", n, err)
	}
	bad := errors.New("gone")
	if err := poll(t.Context(), "never", func() (bool, error) { return false, bad }); !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := poll(ctx, "never", func() (bool, error) { return false, nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestResidentMiB(t *testing.T) {
	if got, err := residentMiB(os.Getpid()); err != nil || got < 1 || got > 4096 {
		t.Errorf("this process: %v MiB, %v", got, err)
	}
	if _, err := residentMiB(1 << 30); err == nil {
		t.Error("a process that is not there has memory")
	}
}
