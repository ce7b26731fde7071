// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// limited begins a request and returns the limit that it met, "" if it was let in.
func limited(t testing.TB, ms *Meters, who *Tenant, now time.Time) (*Lease, Limit, time.Duration) {
	t.Helper()
	l, _, err := ms.Begin(who, now)
	var e *LimitError
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	if e == nil {
		return l, "", 0
	}
	return l, e.Limit, e.Retry
}

// A burst is let in at once and then one request per 1/rate; the wait that is told is the wait that it takes.
func TestRate(t *testing.T) {
	var ms Meters
	who := &Tenant{Name: "a", Limits: Limits{Rate: 2, Burst: 3}}
	for i := range 3 {
		l, q, err := ms.Begin(who, epoch)
		if err != nil || q.Left != 2-i || q.Limit != 3 || q.Full != time.Duration(i+1)*time.Second/2 {
			t.Fatalf("request %d: %+v, %v", i, q, err)
		}
		l.End()
	}
	if _, limit, retry := limited(t, &ms, who, epoch); limit != LimitRate || retry != 500*time.Millisecond {
		t.Errorf("the fourth: %q, retry after %v", limit, retry)
	}
	if _, limit, _ := limited(t, &ms, who, epoch.Add(499*time.Millisecond)); limit != LimitRate {
		t.Errorf("before its time: %q", limit)
	}
	if _, limit, _ := limited(t, &ms, who, epoch.Add(500*time.Millisecond)); limit != "" {
		t.Errorf("at its time: %q", limit)
	}
	if _, limit, _ := limited(t, &ms, &Tenant{Name: "b", Limits: who.Limits}, epoch); limit != "" {
		t.Errorf("another tenant: %q", limit)
	}
}

func TestConcurrency(t *testing.T) {
	var ms Meters
	who := &Tenant{Name: "a", Limits: Limits{Concurrent: 1}}
	l, limit, _ := limited(t, &ms, who, epoch)
	if limit != "" {
		t.Fatal(limit)
	}
	if _, limit, _ := limited(t, &ms, who, epoch); limit != LimitConcurrent {
		t.Errorf("the second: %q", limit)
	}
	l.End()
	if _, limit, _ := limited(t, &ms, who, epoch); limit != "" {
		t.Errorf("after the first: %q", limit)
	}
}

// Images are paid for afterwards: one request may bring more than there is, and the next waits for it.
func TestImageBytes(t *testing.T) {
	var ms Meters
	who := &Tenant{Name: "a", Limits: Limits{ImageBytes: 1000}}
	l, _, _ := limited(t, &ms, who, epoch)
	l.Images(3000, epoch)
	l.End()
	if _, limit, retry := limited(t, &ms, who, epoch); limit != LimitImages || retry != 2*time.Second {
		t.Errorf("%q, retry after %v; want 2s for 2000 bytes", limit, retry)
	}
	if _, limit, _ := limited(t, &ms, who, epoch.Add(2*time.Second)); limit != "" {
		t.Errorf("after that: %q", limit)
	}
}

// What a tenant has used up outlives new limits, so that a reload gives nobody a fresh burst.
func TestReloadKeepsWhatWasUsed(t *testing.T) {
	var ms Meters
	use := func(l Limits, now time.Time) Limit {
		_, limit, _ := limited(t, &ms, &Tenant{Name: "a", Limits: l}, now)
		return limit
	}
	old := Limits{Rate: 1, Burst: 2}
	for i, want := range []Limit{"", "", LimitRate} {
		if got := use(old, epoch); got != want {
			t.Fatalf("request %d of a burst of 2: %q", i, got)
		}
	}
	if got := use(Limits{Rate: 1, Burst: 50}, epoch); got != LimitRate {
		t.Errorf("with a larger burst: %q", got)
	}
	if got := use(Limits{}, epoch); got != "" {
		t.Errorf("without a limit: %q", got)
	}
	if got := use(old, epoch); got != "" {
		t.Errorf("with a limit where none was: %q", got)
	}
}

func TestSweepForgetsTenantsThatAreGone(t *testing.T) {
	var ms Meters
	l, _, _ := limited(t, &ms, &Tenant{Name: "busy"}, epoch)
	idle, _, _ := limited(t, &ms, &Tenant{Name: "idle"}, epoch)
	idle.End()
	kept, _, _ := limited(t, &ms, &Tenant{Name: Default}, epoch)
	kept.End()
	set, _ := Clear([]string{"k"})
	ms.Sweep(set)
	if len(ms.all) != 2 || ms.all["idle"] != nil {
		t.Errorf("left: %v", ms.all)
	}
	l.End()
	if ms.Sweep(set); len(ms.all) != 1 {
		t.Errorf("left: %v", ms.all)
	}
}

// Whatever comes when: in any span of time no more is let in than burst + rate x span, a refusal is for a
// reason, and who comes back after the time told is let in.
func TestRateHoldsProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var ms Meters
		l := Limits{Rate: rapid.Float64Range(0.1, 500).Draw(r, "rate"), Burst: rapid.IntRange(1, 20).Draw(r, "burst")}
		who := &Tenant{Name: "a", Limits: l}
		now, in := epoch, []time.Time{}
		for range rapid.IntRange(1, 60).Draw(r, "requests") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(r, "pause")))
			lease, _, err := ms.Begin(who, now)
			if err != nil {
				now = now.Add(err.(*LimitError).Retry)
				if lease, _, err = ms.Begin(who, now); err != nil {
					r.Fatalf("refused after the time that was told: %v", err)
				}
			}
			lease.End()
			in = append(in, now)
		}
		for i := range in {
			for j := i; j < len(in); j++ {
				most := float64(l.Burst) + l.Rate*in[j].Sub(in[i]).Seconds()
				if n := float64(j - i + 1); n > math.Ceil(most+1e-6) {
					r.Fatalf("%v requests in %v, at most %v", n, in[j].Sub(in[i]), most)
				}
			}
		}
	})
}
