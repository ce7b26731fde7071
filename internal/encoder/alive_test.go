// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/cache"
	"afterimage/internal/control"
)

// G05: an Encoder is alive while calls end, however many there are; it is not once one does not, and is again when it
// does.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Encoder{}
		for range 10 {
			end := e.call.begin()
			time.Sleep(hangs - time.Second)
			if err := e.Alive(); err != nil {
				t.Fatalf("busy: %v", err)
			}
			end()
		}
		time.Sleep(2 * hangs)
		if err := e.Alive(); err != nil {
			t.Errorf("idle: %v", err)
		}
		end := e.call.begin()
		time.Sleep(hangs + time.Second)
		if err := e.Alive(); err == nil || !strings.Contains(err.Error(), "has not returned for 5m1s") {
			t.Errorf("a call that hangs: %v", err)
		}
		end()
		if err := e.Alive(); err != nil {
			t.Errorf("after the call: %v", err)
		}
	})
}

// G05: an Encoder takes no more once a call takes far longer than any did, and says so in the same words until it ends;
// slow pictures teach it to wait longer, and busy it is ready.
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Encoder{cfg: Config{Cache: cache.New(0)}}
		took := func(d time.Duration) {
			end := e.call.begin()
			time.Sleep(d)
			end()
		}
		f := func(from, limit time.Duration) {
			t.Helper()
			e.call.begin()
			time.Sleep(limit)
			if err := e.Ready(); err != nil {
				t.Errorf("after %v, with none above %v: %v", limit, from, err)
			}
			time.Sleep(time.Nanosecond)
			first := e.Ready()
			if a := e.Announcement(); !a.Stalled() {
				t.Errorf("it announces: ready %v, %q", a.Ready, a.Reason)
			}
			time.Sleep(time.Second)
			if err := e.Ready(); first == nil || err == nil || err.Error() != first.Error() || !strings.HasPrefix(err.Error(), control.Stalled) {
				t.Errorf("after more than %v, with none above %v: %v, then %v", limit, from, first, err)
			}
			if err := e.Alive(); limit+2*time.Second < hangs && err != nil {
				t.Errorf("it is to be started again after %v: %v", limit, err)
			}
			e.call.since.Store(nil) // it ends without having taken any time
		}
		f(0, stalls)
		took(time.Second)
		f(time.Second, stalls)
		took(stalls)
		f(stalls, slower*stalls)
		took(hangs - time.Second)
		f(hangs-time.Second, hangs)
		if err := e.Ready(); err != nil || !e.Announcement().Ready {
			t.Errorf("idle: %v", err)
		}
	})
}
