// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// quickly asks often, so that a test need not wait.
func quickly(c *Config) { c.LiveEvery, c.LiveMisses = 200*time.Millisecond, 5 }

// A process that stands still is killed and comes back; one that stood still for a moment is left alone.
func TestFrozenProcessIsRestarted(t *testing.T) {
	s, w := supervisor(t, quickly, fake("encoder", 0, "ok"), fake("gateway", 0, "ok"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := s.Status()[0]
	if err := syscall.Kill(before.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	down := w.until("the encoder is down", is("encoder", Down))
	if !strings.Contains(down.Reason, "frozen: did not answer /livez 5 times in a row") || down.Restarts != 1 {
		t.Errorf("got %+v, want one restart of what is frozen", down)
	}
	gone(t, before.PID)
	after := w.until("the encoder is back", is("encoder", Ready))
	if after.Address != before.Address || after.PID == before.PID {
		t.Errorf("got %s (pid %d), want %s and another pid than %d", after.Address, after.PID, before.Address, before.PID)
	}
	if st := s.Status()[1]; st.Restarts != 0 {
		t.Errorf("the gateway was restarted, too: %+v", st)
	}
}

// A process that says that it must be restarted is: in order, with its own reason, and once.
func TestSickProcessIsRestarted(t *testing.T) {
	s, w := supervisor(t, quickly, fake("encoder", 0, "sick"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, s)
	down := w.until("the encoder is down", is("encoder", Down))
	if !strings.HasPrefix(down.Reason, "must be restarted: lost its Store;") {
		t.Errorf("reason %q, want the encoder's own", down.Reason)
	}
	if got := w.out.String(); !strings.Contains(got, "got terminated") {
		t.Errorf("output %q, want it to be told to stop", got)
	}
	if up := w.until("the encoder is back", is("encoder", Ready)); up.Restarts != 1 {
		t.Errorf("%d restarts, want 1", up.Restarts)
	}
}

// One that does not stop when it is told to is killed in the end.
func TestSickProcessThatHangs(t *testing.T) {
	s, w := supervisor(t, func(c *Config) { quickly(c); c.ReplaceTimeout = 50 * time.Millisecond }, fake("encoder", 0, "sick and deaf"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, s)
	w.until("the encoder is down", is("encoder", Down))
	w.until("the encoder is back", is("encoder", Ready))
}
