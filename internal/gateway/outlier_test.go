// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestOutliers: three failures in a row leave a worker alone, each further one after its rest for twice as long; a
// call that works forgets all of it. Who is alone left is asked all the same.
func TestOutliers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutliers(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		snap := twoPrefills()
		a := snap.Prefills[0]
		h := newHistory()
		h.left = o.left
		c := newChooser(RoundRobin, func(string) {})
		asked := func() map[string]int {
			got := map[string]int{}
			for range 10 {
				pd, done, err := c.prefill(snap, &request{}, "k", h)
				if err != nil {
					t.Fatal(err)
				}
				done()
				got[pd.URL]++
			}
			return got
		}
		o.answered(a, 500)
		o.answered(a, 503)
		o.answered(a, 429)
		o.answered(a, 500)
		o.failed(a)
		if got := asked(); got["a"] != 5 {
			t.Errorf("two failures in a row: %v", got)
		}
		rest := outlierFirst
		for range 6 {
			for !o.left("a") {
				o.failed(a)
			}
			if got := asked(); got["a"] != 0 {
				t.Errorf("left alone: %v", got)
			}
			o.failed(a) // of a call that began before
			time.Sleep(rest - time.Millisecond)
			if !o.left("a") {
				t.Errorf("it is asked before %v have passed", rest)
			}
			time.Sleep(time.Millisecond)
			if got := asked(); got["a"] != 5 {
				t.Errorf("after %v: %v", rest, got)
			}
			rest = min(2*rest, outlierLast)
		}
		if rest != outlierLast || testutil.ToFloat64(o.ejections) != 6 {
			t.Errorf("rest %v, %v ejections", rest, testutil.ToFloat64(o.ejections))
		}
		o.failed(a)
		o.worked("a")
		o.failed(a)
		o.failed(a)
		if o.left("a") {
			t.Error("failures from before a call that worked count")
		}
		o.failed(a)
		for range 3 {
			o.failed(snap.Prefills[1])
		}
		if got := asked(); got["a"] != 5 || got["b"] != 5 {
			t.Errorf("all are left alone: %v", got)
		}
	})
}
