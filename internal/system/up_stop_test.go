// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/model"
)

// signalGroup does what Ctrl-C does in a terminal: everything in the foreground group gets sig.
func (u *upRun) signalGroup(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-u.cmd.Process.Pid, sig); err != nil {
		t.Fatal(err)
	}
}

// ends waits for up's own end, which must be orderly, and checks that it leaves nothing.
func (u *upRun) ends(t *testing.T, patience time.Duration) {
	t.Helper()
	select {
	case <-u.exited:
	case <-time.After(patience):
		t.Fatalf("up has not ended after %v", patience)
	}
	if status := u.cmd.ProcessState.ExitCode(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	u.gone(t, 0)
}

// sharedMemory lists the inodes of the memory that the roles of a run share, by the names of arenas.
func (u *upRun) sharedMemory() map[uint64]string {
	found := map[uint64]string{}
	for _, pid := range u.roles() {
		eachMemfd(fmt.Sprintf("/proc/%d/fd/*", pid), func(inode uint64, name string) { found[inode] = name })
	}
	return found
}

// eachMemfd visits the open memory files below a pattern of /proc.
func eachMemfd(pattern string, visit func(inode uint64, name string)) {
	all, _ := filepath.Glob(pattern)
	for _, file := range all {
		name, err := os.Readlink(file)
		if err != nil || !strings.HasPrefix(name, "/memfd:") {
			continue
		}
		var st syscall.Stat_t
		if syscall.Stat(file, &st) == nil {
			visit(st.Ino, name)
		}
	}
}

// TestSignalStopsAll stops a fleet as a terminal and as a service manager do, and looks for remains.
func TestSignalStopsAll(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			u := startUp(t, append(pair(t, model.MLP), "--log-level", "debug")...)
			u.mustAsk(t, "0", picture(t, 64, 48, 1))
			memory := u.sharedMemory()
			if len(memory) < 4 {
				t.Errorf("found shared memory %v, want the arenas of four roles", memory)
			}
			u.signalGroup(t, sig)
			u.ends(t, 5*time.Second)

			for name, address := range u.address {
				if conn, err := net.Dial("tcp", address); err == nil {
					conn.Close()
					t.Errorf("%s still listens on %s", name, address)
				}
			}
			eachMemfd("/proc/[0-9]*/fd/*", func(inode uint64, name string) {
				if memory[inode] == name {
					t.Errorf("%s is still held", name)
				}
			})
			var order []string
			for _, m := range regexp.MustCompile(`msg=stopped process=([a-z]+)`).FindAllStringSubmatch(u.errs.String(), -1) {
				order = append(order, m[1])
			}
			if len(order) != 5 || order[0] != "gateway" || order[4] != "store" {
				t.Errorf("roles stopped in the order %v, want the gateway first and the Store last", order)
			}
		})
	}
}

// TestStopLetsAnAnswerEnd stops a fleet while it answers: the client's stream comes to a proper end.
func TestStopLetsAnAnswerEnd(t *testing.T) {
	u := startUp(t, pair(t, model.MLP)...)
	resp, err := u.client.HTTP.Post(u.url+"/v1/chat/completions", "application/json", strings.NewReader(story))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	if _, err := stream.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	u.signalGroup(t, syscall.SIGINT)
	rest, err := io.ReadAll(stream)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") || strings.Contains(string(rest), `{"error"`) {
		t.Errorf("the stream was cut (%v): ...%s", err, rest[max(0, len(rest)-200):])
	}
	u.ends(t, 5*time.Second)
}

// TestSecondSignalStopsAtOnce has a role that cannot stop, for which the first signal waits.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	u := startUp(t, pair(t, model.MLP)...)
	if err := syscall.Kill(u.roles()["store"], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	u.signalGroup(t, syscall.SIGINT)
	eventually(t, "the other roles have stopped", func() bool { return len(u.roles()) == 1 })
	select {
	case <-u.exited:
		t.Fatal("up ended before the Store did")
	default:
	}
	u.signalGroup(t, syscall.SIGINT)
	u.ends(t, time.Second)
}

// TestKilledUpLeavesNothing kills up itself.
func TestKilledUpLeavesNothing(t *testing.T) {
	u := startUp(t, pair(t, model.MLP)...)
	u.mustAsk(t, "", picture(t, 64, 48, 1))
	if err := u.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-u.exited
	u.gone(t, 3*time.Second)
}

// TestEndDuringStart interrupts and kills up at several points of its start.
func TestEndDuringStart(t *testing.T) {
	has := func(role string) func(*upRun) bool { return func(u *upRun) bool { return u.roles()[role] != 0 } }
	points := []struct {
		name    string
		reached func(*upRun) bool
	}{
		{"the Store starts", has("store")}, {"an Encoder starts", has("encoder-0")}, {"the gateway starts", has("gateway")},
	}
	flags := pair(t, model.MLP)
	for _, p := range points {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
			t.Run(p.name+", "+sig.String(), func(t *testing.T) {
				u := launch(t, flags...)
				eventually(t, p.name, func() bool { return p.reached(u) })
				u.signalGroup(t, sig)
				if sig == syscall.SIGKILL {
					<-u.exited
					u.gone(t, 3*time.Second)
					return
				}
				u.ends(t, 5*time.Second)
				for _, bad := range []string{"error", "panic", "goroutine "} {
					if strings.Contains(u.errs.String(), bad) {
						t.Errorf("an interrupted start prints %q", bad)
					}
				}
			})
		}
	}
}
