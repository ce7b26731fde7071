// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// watched returns the near end of a pipe, of which the far end says nothing.
func watched(t *testing.T, timeout time.Duration) (*watch, *limit, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	w := newWatch(timeout)
	l := w.add(near)
	t.Cleanup(func() {
		l.end()
		near.Close()
		far.Close()
	})
	return w, l, near
}

func TestLateStepFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 80 * time.Millisecond
		w, l, nc := watched(t, timeout)
		for range 3 { // steps that are met leave nothing behind
			l.within(timeout)
			time.Sleep(timeout / 2)
			if err := l.met(); err != nil {
				t.Fatalf("a step in time: %v", err)
			}
		}
		start := time.Now()
		l.within(timeout)
		_, err := nc.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took < timeout || took > timeout+w.every {
			t.Errorf("%v after %v, want a deadline after %v to %v", err, took, timeout, timeout+w.every)
		}
		for range 2 {
			if err := l.met(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("met says %v, want that the step was late for ever", err)
			}
			l.within(timeout)
		}
	})
}

// A step that is extended has its time from then on.
func TestExtendedStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 80 * time.Millisecond
		_, l, _ := watched(t, timeout)
		for range 10 {
			l.within(timeout)
			time.Sleep(timeout - time.Millisecond)
		}
		if err := l.met(); err != nil {
			t.Error(err)
		}
	})
}

// Where nothing is in progress nothing runs, and the next step is watched all the same.
func TestWatchRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 80 * time.Millisecond
		w, l, nc := watched(t, timeout)
		for range 3 {
			l.within(timeout)
			if err := l.met(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * w.every)
			if w.armed.Load() {
				t.Fatal("the timer runs while nothing is in progress")
			}
		}
		l.within(timeout)
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after a rest: %v, want a deadline", err)
		}
	})
}
