// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestForeignProgram(t *testing.T) {
	address := freeAddress()
	s, w := supervisor(t, nil, foreign("foreign", 0, address), fake("gateway", 1, "ok"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := s.Status()[0]
	if before.State != Ready || before.Address != address || before.PID == 0 {
		t.Fatalf("after Start: got %+v, want it ready at %s", before, address)
	}
	if dir, err := os.Readlink("/proc/" + strconv.Itoa(before.PID) + "/cwd"); err != nil || dir != s.cfg.RunDir {
		t.Errorf("it runs in %s (%v), want %s", dir, err, s.cfg.RunDir)
	}
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.until("it is down", is("foreign", Down))
	after := w.until("it is back", is("foreign", Ready))
	if after.PID == before.PID || after.Address != address || after.Restarts != 1 {
		t.Errorf("after the restart: got %+v, want another process at %s", after, address)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	gone(t, after.PID)
}

// Another that listens at the address must not pass for the program, whose last words are told.
func TestForeignProgramThatEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	spec := foreign("foreign", 0, freeAddress())
	taken := ln.Addr().String()
	spec.Command = func(Known) (args, env []string) {
		return nil, []string{envFake + "=foreign", envListen + "=" + taken, quickExit}
	}
	s, _ := supervisor(t, nil, spec)
	err = s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want its status and last words", err)
	}
}

func TestForeignProgramNotReadyInTime(t *testing.T) {
	spec := foreign("foreign", 0, freeAddress())
	spec.Address = freeAddress() // not the one where it listens
	s, _ := supervisor(t, func(c *Config) { c.StartTimeout = 300 * time.Millisecond }, spec)
	if err := s.Start(t.Context()); !errors.Is(err, errTimeout) || !strings.Contains(err.Error(), spec.Address) {
		t.Errorf("got %v, want a timeout that names %s", err, spec.Address)
	}
}

func TestForeignProgramNeedsAnAddress(t *testing.T) {
	_, err := New(Config{Binary: "x", Specs: []Spec{foreign("foreign", 0, "")}})
	if err == nil || !strings.Contains(err.Error(), "foreign needs both") {
		t.Errorf("got %v, want a refusal", err)
	}
}
