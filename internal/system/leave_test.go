// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/client"
	"afterimage/internal/control"
	"afterimage/internal/gateway"
)

// start sends a streamed chat in the background. The request ends with ctx; got receives its error, or
// that of reading the answer. first is closed when the answer begins.
func (f *fleet) start(t *testing.T, ctx context.Context, first chan<- struct{}, parts ...any) (got chan error) {
	t.Helper()
	body := must[[]byte](t)(json.Marshal(map[string]any{"messages": []any{user(parts...)}, "stream": true, "temperature": 0}))
	req := must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodPost, f.gateway.URL+control.PathChat, strings.NewReader(string(body))))
	got = make(chan error, 1)
	go func() {
		resp, err := f.gateway.Client().Do(req)
		if err != nil {
			got <- err
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if first != nil && lines.Text() != "" {
				close(first)
				first = nil
			}
		}
		got <- lines.Err()
	}()
	return got
}

// arrivals reports each request to path, and lets it through.
func (n *node) arrivals(path string) <-chan struct{} {
	c := make(chan struct{}, 64)
	n.fail(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == path {
			c <- struct{}{}
		}
		return false
	})
	return c
}

// leaves runs a stage in which a client leaves, and wants all workers to have let go within a second of that, which
// stage returns. A machine under load is late at times; a cancel that went lost is late at each of three tries.
func leaves(t *testing.T, name string, stage func(t *testing.T) time.Duration) {
	t.Run(name, func(t *testing.T) {
		var took []time.Duration
		for range 3 {
			d := stage(t)
			if d <= time.Second {
				return
			}
			took = append(took, d)
		}
		t.Errorf("the workers let go %v after the client left, want a second at most", took)
	})
}

// letGo is when a test gives up waiting for a cancel; time-outs that would mend one that went lost are longer.
const letGo = 8 * time.Second

// TestClientLeaves (T11, T06): wherever a request is, its end reaches every worker within a second, and
// the memory comes back.
func TestClientLeaves(t *testing.T) {
	fetching, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fetching <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	defer web.Close()

	leaves(t, "during fetch", func(t *testing.T) time.Duration {
		f := newFleet(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		prepared := f.prefill.watch(control.PathPrepare)
		got := f.start(t, ctx, nil, imgAt(web.URL))
		<-fetching
		left := time.Now()
		cancel()
		<-got
		select {
		case <-gone:
		case <-time.After(letGo):
			t.Error("the fetch goes on")
		}
		f.left(t)
		if prepared.Load() != 0 {
			t.Error("a P/D was asked")
		}
		return time.Since(left)
	})
	leaves(t, "during encode", func(t *testing.T) time.Duration {
		f := newFleet(t, func(o *options) { o.encoders, o.encodeTime = 1, 150*time.Millisecond })
		e := f.encoders[0]
		ctx, cancel := context.WithCancel(t.Context())
		got := f.start(t, ctx, nil, img(picture(t, 30, 30, 190)), img(picture(t, 31, 30, 191)), img(picture(t, 32, 30, 192)))
		eventually(t, "one is in the engine, two wait", func() bool { a := e.announcement(t); return a.Running == 1 && a.Waiting == 2 })
		left := time.Now()
		cancel()
		<-got
		within(t, letGo, "the Encoder is idle", func() bool { a := e.announcement(t); return a.Running == 0 && a.Waiting == 0 })
		f.left(t)
		f.seenToLeave(t)
		took := time.Since(left)
		if n := f.encodes(t); n != 1 {
			t.Errorf("%v encodes: the one in the engine is finished and kept, no other begins", n)
		}
		if n := e.cache.Stats().Entries; n != 1 {
			t.Errorf("%d objects kept, want 1", n)
		}
		return took
	})
	leaves(t, "while it waits for memory", func(t *testing.T) time.Duration {
		f := newFleet(t, func(o *options) { o.encoders, o.encodeTime = 1, 200*time.Millisecond })
		hog := must[hogged](t)(f.hog(arenaSize - 64))
		arrived := f.prefill.arrivals(control.PathPrepare)
		ctx, cancel := context.WithCancel(t.Context())
		got := f.start(t, ctx, nil, img(picture(t, 30, 30, 193)))
		<-arrived
		left := time.Now()
		cancel()
		<-got
		hog.Abort()
		f.left(t)
		return time.Since(left)
	})
	leaves(t, "before the first token", func(t *testing.T) time.Duration {
		f := newFleet(t, func(o *options) { o.prefillTime = 20 * time.Millisecond })
		ctx, cancel := context.WithCancel(t.Context())
		got := f.start(t, ctx, nil, img(picture(t, 30, 30, 194)), text(strings.Repeat("x", 500)))
		eventually(t, "the P/D is at it", func() bool { return f.prefill.announcement(t).Running == 1 })
		left := time.Now()
		cancel()
		<-got
		f.left(t)
		f.seenToLeave(t)
		return time.Since(left)
	})
	leaves(t, "mid-stream", func(t *testing.T) time.Duration {
		f := newFleet(t, func(o *options) { o.decodeTime, o.answerLen = 10*time.Millisecond, 1000 })
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan struct{})
		got := f.start(t, ctx, first, img(picture(t, 30, 30, 195)))
		<-first
		left := time.Now()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("the client read %v", err)
		}
		f.left(t)
		f.seenToLeave(t)
		return time.Since(left)
	})
}

// seenToLeave waits until the P/D has counted a request as cancelled.
func (f *fleet) seenToLeave(t *testing.T) {
	t.Helper()
	within(t, letGo, "the P/D saw it", func() bool { return f.prefill.count(t, "afterimage_prefill_requests_total", "cancelled") == 1 })
}

// left checks that nothing of a request is left, and that its client's leaving is what was counted.
func (f *fleet) left(t *testing.T) {
	t.Helper()
	within(t, letGo, "the gateway is done", func() bool { return f.gateway.count(t, "afterimage_gateway_requests_running", "") == 0 })
	within(t, letGo, "the memory is back", f.free)
	within(t, letGo, "the P/D is idle", func() bool { a := f.prefill.announcement(t); return a.Running == 0 && a.Waiting == 0 })
	if got := f.gateway.count(t, "afterimage_gateway_requests_total", "499"); got != 1 {
		t.Errorf("%v requests of clients that left, want 1", got)
	}
}

// hogged is memory of the pool that someone else holds.
type hogged interface{ Abort() }

func (f *fleet) hog(n int) (hogged, error) { return f.pool.Reserve(n) }

// TestLeaderLeaves (T10): the encode that three clients wait for survives the first of them.
func TestLeaderLeaves(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encoders, o.encodeTime = 1, 300*time.Millisecond })
	e := f.encoders[0]
	file := picture(t, 60, 60, 200)
	var calls atomic.Int64
	e.fail(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == control.PathEncode || r.URL.Path == control.PathDeliver {
			calls.Add(1)
		}
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	leader := f.start(t, ctx, nil, img(file))
	eventually(t, "the leader's image is in the engine", func() bool { return e.announcement(t).Running == 1 })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			a, err := f.client.Ask(t.Context(), question(file), nil)
			if err != nil || a.Text != reference(t, nil, turn{file, "what?"}) || a.Attempts != 1 {
				t.Errorf("a follower: %q, %d attempts, %v", a.Text, a.Attempts, err)
			}
		})
	}
	eventually(t, "the followers have called", func() bool { return calls.Load() == 3 })
	cancel()
	<-leader
	wg.Wait()
	if got := f.encodes(t); got != 1 {
		t.Errorf("%v encodes, want 1", got)
	}
	eventually(t, "the memory is back", f.free)
}

// TestEncoderDiesMidway (T06): the P/D's memory for what a dead Encoder owed comes back.
func TestEncoderDiesMidway(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encoders = 1 })
	f.encoders[0].failOn(control.PathEncode, func(w http.ResponseWriter, r *http.Request) {
		readAll(r.Body)
		hangUp(w, r)
	})
	for i := range 5 {
		f.expect(t, "dead", 503, "", picture(t, 60, 60, uint8(205+i)))
		eventually(t, "it is probed again", func() bool { return f.ready() == nil })
	}
	f.encoders[0].heal()
	f.expect(t, "alive", 200, "choices", picture(t, 60, 60, 210))
}

// TestNothingToEncode (C12): an image that only the Store holds, then a new one.
func TestNothingToEncode(t *testing.T) {
	f := newFleet(t, nil)
	file := picture(t, 60, 60, 211)
	want := f.ask(t, "0", file).Text
	f.published(t, 0)
	for range 3 {
		f.encoders[1].cache.Remove(f.key(t, file))
		if a := f.ask(t, "1", file); sources(a) != "store" || a.Text != want {
			t.Errorf("source %q, %q, want %q", sources(a), a.Text, want)
		}
	}
	if a := f.ask(t, "1", picture(t, 60, 60, 212)); sources(a) != "encoded" {
		t.Errorf("a new image: %q", sources(a))
	}
	if got := f.encodes(t); got != 2 {
		t.Errorf("%v encodes, want 2", got)
	}
}

// TestManyOverASmallPool (T02): 50 requests of three images over memory for four objects all end well.
func TestManyOverASmallPool(t *testing.T) {
	const object = 25*cols*4 + 128 // 5 x 5 rows of float32, head and layout
	f := newFleet(t, func(o *options) {
		o.poolArena, o.poolBytes = 8192, 8192
		o.grantWait = time.Minute // a machine under load takes seconds for all of them, one after the other
		o.gateway = func(c *gateway.Config) { c.PrepareTimeout = 2 * time.Minute }
	})
	if 4*object > 8192 || 5*object <= 8192 {
		t.Fatalf("the pool is not one of four objects of %d bytes", object)
	}
	var files [][]byte
	for i := range 8 {
		files = append(files, picture(t, 140, 140, uint8(220+i)))
	}
	three := func(i int) (a, b, c []byte) { return files[i%8], files[(i+1)%8], files[(i+3)%8] }
	var want []string
	for i := range 8 {
		a, b, c := three(i)
		want = append(want, reference(t, nil, turn{a, b, c, "what?"}))
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			a, b, c := three(i)
			got, err := f.client.Ask(t.Context(), client.Question{Text: "what?", Images: [][]byte{a, b, c}}, nil)
			if err != nil || got.Text != want[i%8] {
				t.Errorf("request %d: %q, want %q: %v", i, got.Text, want[i%8], err)
			}
		})
	}
	wg.Wait()
	// A read that copies finds no memory in a pool that is full; its request is repaired by encoding afresh.
	repairs := f.gateway.count(t, "afterimage_gateway_repairs_total", "")
	if got := f.encodes(t); got < 8 || got > 8+3*repairs {
		t.Errorf("%v encodes of 8 pictures with %v repairs", got, repairs)
	}
	eventually(t, "the memory is back", f.free)
}

// TestManyBeyondTheDeadline (T02): 200 requests at once over memory for one at a time, of which none waits for longer
// than the time for a grant. Each ends, in its right answer or in a refusal that says when to come again, and
// the memory comes back.
func TestManyBeyondTheDeadline(t *testing.T) {
	f := newFleet(t, func(o *options) {
		o.encoders, o.p2p, o.residents = 1, true, 0
		o.poolArena, o.poolBytes = 8192, 8192
		o.prefillTime, o.grantWait = time.Millisecond, 200*time.Millisecond
	})
	file, other, third := picture(t, 140, 140, 230), picture(t, 140, 140, 231), picture(t, 140, 140, 232)
	want := f.ask(t, "", file, other, third).Text
	var served, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			status, header, body := f.post(t, nil, messages(turn{file, other, third, "what?"})...)
			switch {
			case status == http.StatusOK:
				if got := content(t, status, body); got != want {
					t.Errorf("request %d: %q, want %q", i, got, want)
				}
				served.Add(1)
			case (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && header.Get("Retry-After") != "":
				refused.Add(1)
			default:
				t.Errorf("request %d: %d, Retry-After %q, %s", i, status, header.Get("Retry-After"), body)
			}
		})
	}
	wg.Wait()
	if served.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d served and %d refused, want some of each", served.Load(), refused.Load())
	}
	eventually(t, "the memory is back", f.free)
	if a := f.ask(t, "", file); a.Text == "" {
		t.Error("no answer afterwards")
	}
}
