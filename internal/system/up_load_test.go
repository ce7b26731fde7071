// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"afterimage/internal/model"
)

// loadPlan says how long a fleet is under load, how wide the load is, and what is asked of the fleet.
type loadPlan struct {
	pictures, groups, texts int           // distinct requests: about one picture each, about several, about none
	measure                 time.Duration // how long capacity is measured
	between                 time.Duration // how long until it is measured again, since a machine's speed changes; 0 is never
	arrivals                int           // requests of the load; 0 for as many as come in `lasts`
	lasts                   time.Duration
	warm                    time.Duration // of lasts: what is left out of slopes, since caches and heaps still fill
	sample                  time.Duration // between two looks at the roles
	growth                  float64       // most MiB by which a role's memory may differ from before
	slope                   float64       // most MiB per hour by which it may grow; 0 for no verdict
	refused                 float64       // largest share of requests that may find no place
	patience                time.Duration // until connections that nobody uses are closed; 0 does not wait for that
	memory                  []string      // flags: caches that evict
}

// The short plan decides nothing by time: so many requests come, however long a slow machine takes for them.
var shortPlan = loadPlan{
	pictures: 30, groups: 6, texts: 4, measure: time.Second, arrivals: 100, sample: 250 * time.Millisecond,
	growth: 48, refused: 1,
	memory: []string{"--store-bytes", "2MiB", "--encoder-cache-bytes", "512KiB", "--prefill-resident-bytes", "512KiB"},
}

// The full plan's pictures yield 140 MiB of embeddings, which fill its caches before the load begins: from then on they
// evict, and resident memory that still grows is none that fills.
//
// At 10 requests per second its limit of 8 MiB per hour is 230 bytes per request: less than the name of an object, a
// goroutine, or anything else that a request could leave behind. Below it the fit sees the garbage collector at work,
// under which heaps of 7 MiB breathe by 3, and fragments of C's allocator, which gain 2 MiB in the first ten minutes.
var fullPlan = loadPlan{
	pictures: 1000, groups: 250, texts: 150, measure: 15 * time.Second, between: 4*time.Minute + 45*time.Second,
	lasts: 30 * time.Minute, warm: 10 * time.Minute, sample: 3 * time.Second, growth: 24, slope: 8, refused: 0.5, patience: 3 * time.Minute,
	memory: []string{"--store-bytes", "24MiB", "--encoder-cache-bytes", "4MiB", "--prefill-resident-bytes", "4MiB"},
}

// soakSlots are the P/D's, each of soakContext positions.
const soakSlots, soakContext = 4, 1024

// The door of a soak lets 32 requests in and keeps 64 waiting: a machine that has lost speed since its capacity was
// measured last refuses some, and does not collapse.
var soakDoor = []string{"--slots", strconv.Itoa(soakSlots), "--context", strconv.Itoa(soakContext), "--log-level", "warn",
	"--max-text-requests", "16", "--max-image-requests", "16", "--max-queued", "32", "--max-wait", "10s"}

// TestSoakLoad puts 70 % of what a fleet can take on it, about pictures that its caches cannot all keep. Every answer
// is that of a calm fleet, to the last word: the model's weights are F16, with which company does not matter. Requests
// beyond what the door takes get a 503. Memory does not grow, and at the end nothing is held that caches do not
// explain. AFTERIMAGE_SOAK=1 asks about 1,000 pictures for 30 minutes, and fits slopes to the memory of each role.
func TestSoakLoad(t *testing.T) {
	plan := shortPlan
	if soaking() {
		plan = fullPlan
	}
	u := startUp(t, slices.Concat(pairOf(t, model.RandomOptions{Size: model.Small, Seed: 1}), soakDoor, plan.memory)...)
	l := newLoad(t, u, plan)
	pids := u.roles()
	l.learn(t)
	calm := u.watch(t).sample(t)

	w := u.watch(t)
	stop := w.every(t, plan.sample)
	l.open(t, w)
	stop()
	if soaking() {
		say(t, "after %v, until the end:\n%s", plan.warm, w.table(plan.warm))
	}
	w.verdict(t, plan)
	l.check(t)
	if now := u.roles(); !maps.Equal(now, pids) {
		t.Errorf("processes %v at the start, %v at the end", pids, now)
	}
	u.allFree(t)
	if plan.patience > 0 {
		l.http.CloseIdleConnections()
		u.filesBack(t, calm, plan.patience)
	}
}

// soaking says that tests run at their full figures, as `make soak` has them.
func soaking() bool { return os.Getenv("AFTERIMAGE_SOAK") != "" }

// say prints at once if soaking, which is watched: the log of a test comes when it has ended.
func say(t *testing.T, format string, args ...any) {
	t.Helper()
	if !soaking() {
		t.Logf(format, args...)
		return
	}
	fmt.Printf("soak: %s: %s\n", t.Name(), fmt.Sprintf(format, args...))
}

// everyMinute returns a function to be called often: once a minute it says how far a soak is.
func everyMinute(t *testing.T, how func() string) func() {
	from := time.Now()
	next := from.Add(time.Minute)
	return func() {
		if time.Now().After(next) {
			say(t, "%.0f min: %s", time.Since(from).Minutes(), how())
			next = next.Add(time.Minute)
		}
	}
}
