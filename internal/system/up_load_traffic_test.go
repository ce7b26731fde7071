// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	loadClients  = 16              // of the closed loop that measures capacity
	loadAtOnce   = 256             // most requests of the open loop under way; the door answers beyond 96
	loadPatience = 5 * time.Minute // of clients: what has no answer then hangs, on the slowest of machines
)

// trafficLoad is a set of requests with their right answers, and what became of those that were sent.
type trafficLoad struct {
	u      *upRun
	plan   loadPlan
	http   *http.Client // keeps connections, as clients do
	bodies [][]byte
	want   []string

	mu     sync.Mutex // guards random and turn
	random *rand.Rand
	zipf   *rand.Zipf
	turn   int // requests picked

	right, refused, unsent, wrong atomic.Int64
	slowest                       atomic.Int64 // answer or refusal since the last line, in ns
}

// newLoad writes the requests: about one picture, about several, about none; every fourth is streamed.
func newLoad(t *testing.T, u *upRun, plan loadPlan) *trafficLoad {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	say(t, "seed %d", seed)
	l := &trafficLoad{u: u, plan: plan, random: rand.New(rand.NewPCG(seed, 0)),
		http: &http.Client{Timeout: loadPatience, Transport: &http.Transport{MaxIdleConnsPerHost: loadAtOnce}}}
	files := make([][]byte, plan.pictures)
	for i := range files {
		files[i] = noise(t, int64(10_000+i))
	}
	for i := range plan.pictures + plan.groups + plan.texts {
		var parts []any
		switch {
		case i < plan.pictures:
			parts = append(parts, img(files[i]))
		case i < plan.pictures+plan.groups:
			for range 2 + l.random.IntN(3) {
				parts = append(parts, img(files[l.random.IntN(len(files))]), text("and "))
			}
		default:
			parts = append(parts, text(strings.Repeat("look ", 1+l.random.IntN(150))))
		}
		b, err := json.Marshal(map[string]any{"messages": []any{user(append(parts, text(fmt.Sprint("question ", i)))...)},
			"temperature": 0, "max_tokens": 1 + l.random.IntN(24), "stream": i%4 == 3})
		if err != nil {
			t.Fatal(err)
		}
		l.bodies = append(l.bodies, b)
	}
	l.random.Shuffle(len(l.bodies), func(i, j int) { l.bodies[i], l.bodies[j] = l.bodies[j], l.bodies[i] })
	l.zipf = rand.NewZipf(l.random, 1.1, 8, uint64(len(l.bodies)-1))
	return l
}

// learn asks everything once, one after the other.
func (l *trafficLoad) learn(t *testing.T) {
	t.Helper()
	from, i := time.Now(), 0
	tell := everyMinute(t, func() string { return fmt.Sprintf("%d of %d requests answered one by one", i, len(l.bodies)) })
	l.want = make([]string, len(l.bodies))
	for i = range l.bodies {
		tell()
		eventually(t, fmt.Sprintf("request %d is answered", i), func() bool {
			status, _, words, err := l.post(t.Context(), i)
			if err != nil || status != http.StatusOK && status != http.StatusServiceUnavailable {
				t.Fatalf("request %d of a calm fleet: status %d, %q, %v", i, status, words, err)
			}
			if l.want[i] = words; status != http.StatusOK {
				l.refused.Add(1)
				return false
			}
			l.right.Add(1)
			return true
		})
	}
	say(t, "%d requests about %d pictures answered one by one in %v", len(l.bodies), l.plan.pictures, time.Since(from).Round(time.Second))
}

// pick chooses a request: few are asked often, and which those are moves on, so that each has its time.
func (l *trafficLoad) pick() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn++
	return (int(l.zipf.Uint64()) + l.turn/8) % len(l.bodies)
}

// capacity has as many requests under way at once as there are clients, and returns the answers per second.
func (l *trafficLoad) capacity(t *testing.T) float64 {
	t.Helper()
	before, from := l.right.Load(), time.Now()
	var clients sync.WaitGroup
	for range loadClients {
		clients.Go(func() {
			for time.Since(from) < l.plan.measure && l.wrong.Load() == 0 {
				l.send(t, l.pick())
			}
		})
	}
	clients.Wait()
	perSecond := float64(l.right.Load()-before) / time.Since(from).Seconds()
	say(t, "capacity: %.1f answers/s of %d clients at once; arrivals at 70 %%: %.1f/s", perSecond, loadClients, 0.7*perSecond)
	return perSecond
}

// open puts 70 % of its capacity on the fleet, until as many requests have come, or as much time has passed, as planned.
func (l *trafficLoad) open(t *testing.T, w *watch) {
	t.Helper()
	before, from, left := l.counts(), time.Now(), l.plan.arrivals
	places := make(chan struct{}, loadAtOnce)
	tell := everyMinute(t, func() string {
		b := before
		before = l.counts()
		return fmt.Sprintf("%s; slowest %.1f s; under way %d; MiB of %s", before.since(b),
			time.Duration(l.slowest.Swap(0)).Seconds(), len(places), w.latest())
	})
	more := func() bool { return (left > 0 || time.Since(from) < l.plan.lasts) && l.wrong.Load() == 0 }
	for more() {
		perSecond := 0.7 * l.capacity(t)
		again := time.Now().Add(l.plan.between)
		l.arrive(t, max(perSecond, 0.1), places, func() bool {
			tell()
			left--
			return more() && (l.plan.between == 0 || time.Now().Before(again))
		})
	}
}

// arrive sends requests as they come, at so many per second on average, whether those before are answered or not.
func (l *trafficLoad) arrive(t *testing.T, perSecond float64, places chan struct{}, more func() bool) {
	var under sync.WaitGroup
	defer under.Wait()
	for due := time.Now(); more(); {
		l.mu.Lock()
		due = due.Add(time.Duration(l.random.ExpFloat64() / perSecond * float64(time.Second)))
		l.mu.Unlock()
		time.Sleep(time.Until(due)) // arrivals are a matter of time
		select {
		case places <- struct{}{}:
			i := l.pick()
			under.Go(func() { l.send(t, i); <-places })
		default:
			l.unsent.Add(1)
		}
	}
}

// send asks request i and counts what comes back.
func (l *trafficLoad) send(t *testing.T, i int) {
	from := time.Now()
	status, header, words, err := l.post(t.Context(), i)
	for took := int64(time.Since(from)); ; {
		if was := l.slowest.Load(); took <= was || l.slowest.CompareAndSwap(was, took) {
			break
		}
	}
	switch {
	case err == nil && status == http.StatusOK && words == l.want[i]:
		l.right.Add(1)
	case err == nil && status == http.StatusServiceUnavailable && header.Get("Retry-After") != "":
		l.refused.Add(1)
	default:
		if l.wrong.Add(1) < 5 {
			t.Errorf("request %d: status %d, %q, want %q (%v)", i, status, words, l.want[i], err)
		}
	}
}

// post returns the words of an answer, streamed or not, or the body of a refusal.
func (l *trafficLoad) post(ctx context.Context, i int) (status int, header http.Header, words string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.u.url+"/v1/chat/completions", bytes.NewReader(l.bodies[i]))
	if err != nil {
		return 0, nil, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.http.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp.StatusCode, resp.Header, string(b), err
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		words, whole := joinStream(b)
		if !whole {
			return resp.StatusCode, resp.Header, string(b), fmt.Errorf("a stream that does not end")
		}
		return resp.StatusCode, resp.Header, words, nil
	}
	var whole chatAnswer
	if err := json.Unmarshal(b, &whole); err != nil || len(whole.Choices) != 1 {
		return resp.StatusCode, resp.Header, string(b), fmt.Errorf("no answer: %v", err)
	}
	return resp.StatusCode, resp.Header, whole.Choices[0].Message.Content, nil
}

// loadCounts is what became of requests.
type loadCounts struct{ right, refused, unsent int64 }

func (l *trafficLoad) counts() loadCounts {
	return loadCounts{l.right.Load(), l.refused.Load(), l.unsent.Load()}
}

func (c loadCounts) since(b loadCounts) string {
	return fmt.Sprintf("%d right, %d refused, %d not sent", c.right-b.right, c.refused-b.refused, c.unsent-b.unsent)
}

// check holds what clients saw against what the gateway counts.
func (l *trafficLoad) check(t *testing.T) {
	t.Helper()
	c := l.counts()
	say(t, "in all %s", c.since(loadCounts{}))
	eventually(t, "the gateway has no requests", func() bool {
		return l.u.count(t, "gateway", "afterimage_gateway_requests_running", "") == 0
	})
	if got := l.u.count(t, "gateway", "afterimage_gateway_requests_total", "200"); got != float64(c.right) {
		t.Errorf("the gateway counts %v answers, clients %d", got, c.right)
	}
	if got := l.u.count(t, "gateway", "afterimage_gateway_requests_total", ""); got != float64(c.right+c.refused) {
		t.Errorf("the gateway counts %v requests, clients %d", got, c.right+c.refused)
	}
	sent := float64(c.right + c.refused + c.unsent - int64(len(l.bodies)))
	if none := float64(c.refused + c.unsent); none > l.plan.refused*sent {
		t.Errorf("%v of %v requests found no place: that was more than 70 %% of what this machine can do", none, sent)
	}
}
