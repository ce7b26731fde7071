// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal: what is written to it, and the end that programs are given.
type terminal struct {
	t    *testing.T
	own  *os.File
	tty  *os.File
	seen output
	done chan struct{}
}

func newTerminal(t *testing.T, columns, rows uint16) *terminal {
	t.Helper()
	own := must[*os.File](t)(os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NONBLOCK, 0))
	n := must[uint32](t)(unix.IoctlGetUint32(int(own.Fd()), unix.TIOCGPTN))
	if err := unix.IoctlSetPointerInt(int(own.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetNonblock(int(own.Fd()), true); err != nil { // Fd has made it blocking
		t.Fatal(err)
	}
	own = os.NewFile(must[uintptr](t)(dup(own)), "ptmx")
	p := &terminal{t: t, own: own, tty: must[*os.File](t)(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)), done: make(chan struct{})}
	p.resize(columns, rows)
	go func() { defer close(p.done); _, _ = io.Copy(&p.seen, own) }()
	t.Cleanup(func() { p.tty.Close(); own.Close(); <-p.done })
	return p
}

// dup returns a copy of a descriptor, which does not block.
func dup(f *os.File) (uintptr, error) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	f.Close()
	return uintptr(fd), err
}

func (p *terminal) resize(columns, rows uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *terminal) settings() unix.Termios {
	p.t.Helper()
	return *must[*unix.Termios](p.t)(unix.IoctlGetTermios(int(p.tty.Fd()), unix.TCGETS))
}

// watch runs `top` in the terminal, types keys once it shows the fleet, and returns its exit status.
func (p *terminal) watch(u *upRun, keys string, meanwhile func()) int {
	p.t.Helper()
	cmd := command(p.t, "top", "--url", u.url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.tty, p.tty, p.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	eventually(p.t, "top shows the fleet", func() bool { return strings.Contains(p.seen.String(), "prefill-0") })
	meanwhile()
	if _, err := io.WriteString(p.own, keys); err != nil {
		p.t.Fatal(err)
	}
	eventually(p.t, "top ends", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	return cmd.ProcessState.ExitCode()
}

// In a terminal top draws on a screen of its own, follows the terminal's size, and gives the terminal back as it
// was, whatever ends it. Elsewhere it prints once what there is to see.
func TestTop(t *testing.T) {
	u := startUp(t, "--engine", "device", "--device", "encode=1ms")
	u.mustAsk(t, "", picture(t, 32, 32, 1))
	out, errs, status := run(t, "top", "--url", u.url)
	if status != 0 || !strings.Contains(out, "encoder-1") || !strings.Contains(out, "1 encoded") || strings.Contains(out, "\x1b") {
		t.Errorf("without a terminal: status %d\n%s%s", status, out, errs)
	}
	out, _, status = run(t, "top", "--url", u.url, "--once", "--json")
	var s struct {
		Workers  []struct{ Role, Name string }
		Requests struct{ Ended int }
		Store    struct{ Objects int }
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil || status != 0 || len(s.Workers) != 3 || s.Requests.Ended != 1 || s.Store.Objects != 1 {
		t.Errorf("--once --json: status %d, %v: %s", status, err, out)
	}
	for name, keys := range map[string]string{"q": "q", "Ctrl-C": "\x03"} {
		p := newTerminal(t, 100, 30)
		before := p.settings()
		status := p.watch(u, keys, func() {
			if p.settings() == before {
				t.Error("keys are echoed")
			}
			p.resize(20, 30)
			eventually(t, "top draws in the new width", func() bool { return strings.Contains(p.seen.String(), "requests         1 …") })
		})
		if status != 0 {
			t.Errorf("%s: exit status %d", name, status)
		}
		if after := p.settings(); after != before {
			t.Errorf("%s: the terminal is %+v after top, was %+v", name, after, before)
		}
		eventually(t, "top leaves its screen", func() bool { return strings.HasSuffix(p.seen.String(), "\x1b[?25h\x1b[?1049l") })
		if !strings.Contains(p.seen.String(), "\x1b[?1049h") {
			t.Errorf("%s: top drew on the usual screen", name)
		}
	}
	if _, errs, status := run(t, "top", "--url", "http://127.0.0.1:1"); status != 1 || !strings.Contains(errs, "no gateway answers at http://127.0.0.1:1") {
		t.Errorf("without a gateway: status %d, %s", status, errs)
	}
}
