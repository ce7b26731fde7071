// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/arena"
)

// An outage is told of once, and its end once, whatever the reasons and what follows from them. One that comes at the
// heels of another is told of when it lasts.
func TestOutageIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logbook
		o := &outage{log: slog.New(&log)}
		said := func(away, here int) {
			t.Helper()
			n := log.counts()
			if n[msgAway] != away || n[msgHere] != here || len(n) > 2 {
				t.Errorf("the log says %v, want %d times away, %d times back, and nothing else", n, away, here)
			}
		}
		o.begin(refusing, msgAway)
		o.begin(unconnected, msgAway)
		o.tell("something that follows")
		o.over(refusing)
		said(1, 0)
		o.over(unconnected)
		o.over(unconnected)
		said(1, 1)

		time.Sleep(calm / 2)
		o.tell("something that follows")
		o.begin(refusing, msgAway)
		o.look()
		said(1, 1)
		o.over(refusing)
		said(1, 1)
		o.begin(refusing, msgAway)
		time.Sleep(calm + time.Second)
		o.look()
		o.look()
		said(2, 1)
		o.over(refusing)
		said(2, 2)
		o.begin(unconnected, msgAway) // no master comes and goes so
		said(3, 2)
		o.over(unconnected)

		time.Sleep(2 * calm)
		o.tell("something by itself")
		if log.counts()["something by itself"] != 1 {
			t.Error("nothing is said of what follows from no outage")
		}
	})
}

// At the start there is no Store to be back.
func TestNotYetConnected(t *testing.T) {
	var log logbook
	o := &outage{log: slog.New(&log)}
	o.begin(unconnected, msgNoConnection)
	o.over(unconnected)
	log.said(t, map[string]int{msgNoConnection: 1, msgConnected: 1})
}

// Transfers that fail, or are left and stay in doubt, are told of once, and so is the end of it; neither what a
// caller left for a moment nor what follows from an outage is worth a word.
func TestDoubtIsToldOnce(t *testing.T) {
	a, err := arena.New(arena.Config{Name: "test", Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	synctest.Test(t, func(t *testing.T) {
		var log logbook
		o := &outage{log: slog.New(&log)}
		q := &quarantine{arena: a, away: o, quiet: 30 * time.Second}
		hold := func() *held {
			b, err := a.Reserve(1)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Release()
			return q.hold(b, &session{}, "test")
		}
		wait := func(d time.Duration) {
			for range d / time.Second {
				time.Sleep(time.Second)
				o.look()
				q.look()
			}
		}
		said := func(doubt, back int) {
			t.Helper()
			if n := log.counts(); n[msgDoubt] != doubt || n[msgBack] != back {
				t.Errorf("the log says %v, want %d times doubt and %d times its end", n, doubt, back)
			}
		}
		time.Sleep(time.Hour)
		h := hold()
		wait(patience - time.Second)
		q.free(h)
		wait(time.Minute)
		said(0, 0)

		h = hold()
		wait(time.Minute)
		said(1, 0)
		q.free(h)
		wait(2 * time.Second)
		said(1, 1)

		for range 3 {
			q.failure("test")
			wait(q.quiet - time.Second)
		}
		said(2, 1)
		wait(2 * time.Second)
		said(2, 2)

		o.begin(unconnected, msgAway)
		h = hold()
		q.failure("test")
		wait(time.Minute)
		o.over(unconnected)
		q.free(h)
		said(2, 2)
	})
}
