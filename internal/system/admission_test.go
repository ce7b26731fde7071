// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/admit"
	"afterimage/internal/client"
)

// gauge reads a gauge of a door's registry.
func gauge(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	return (&node{reg: reg}).count(t, name, label)
}

// F01: while images are fetched, decoded and encoded, as many as may be and more that wait for it, text is
// answered and /health too.
func TestTextNeverWaitsForImages(t *testing.T) {
	door := &admit.Config{MaxText: 2, MaxImages: 2, MaxQueued: 50, MaxWait: time.Minute, Registry: prometheus.NewRegistry()}
	f := newFleet(t, func(o *options) { o.door = door })
	reg := door.Registry.(*prometheus.Registry)
	encodes, release := f.holdEncodes()
	defer release()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if status, _, body := f.post(t, nil, user(img(picture(t, 60, 60, byte(i))))); status != 200 {
				t.Errorf("image %d: %d %s", i, status, body)
			}
		})
	}
	eventually(t, "two are in work and the others wait", func() bool {
		return encodes.Load() == 2 && gauge(t, reg, "afterimage_gateway_queued_requests", "images") == 18
	})
	for range 10 {
		if status, _, body := f.post(t, nil, user(text("hi"))); status != 200 {
			t.Errorf("text: %d %s", status, body)
		}
		if got := f.send(t, http.MethodGet, "/health", nil, nil); got.status != 200 {
			t.Errorf("health: %d", got.status)
		}
	}
	if got := encodes.Load(); got != 2 {
		t.Errorf("%d encodes beside two places", got)
	}
	release()
	wg.Wait()
	eventually(t, "no place is taken", func() bool { return gauge(t, reg, "afterimage_gateway_admitted_requests", "images") == 0 })
}

// What waits is bounded in bytes too: a body for which there is no memory is refused with a time to come back, and
// text, which waits in a line of its own, is not.
func TestLineIsBoundedInBytes(t *testing.T) {
	body := must[[]byte](t)(json.Marshal(map[string]any{"messages": []any{user(img(picture(t, 60, 60, 2)))}}))
	door := &admit.Config{MaxText: 2, MaxImages: 1, MaxQueued: 50, MaxQueuedBytes: int64(len(body)) + 100, MaxWait: time.Minute, Registry: prometheus.NewRegistry()}
	f := newFleet(t, func(o *options) { o.door = door })
	reg := door.Registry.(*prometheus.Registry)
	encodes, release := f.holdEncodes()
	defer release()
	var wg sync.WaitGroup
	ask := func() { wg.Go(func() { f.send(t, http.MethodPost, "/v1/chat/completions", nil, body) }) }
	ask()
	eventually(t, "one is in work", func() bool { return encodes.Load() == 1 })
	ask()
	eventually(t, "one waits", func() bool { return gauge(t, reg, "afterimage_gateway_queued_bytes", "images") == float64(len(body)) })
	got := f.send(t, http.MethodPost, "/v1/chat/completions", nil, body)
	if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); got.status != 503 || err != nil || seconds < 1 || !strings.Contains(got.body, "hold too much memory") {
		t.Errorf("a third: %d %v %s", got.status, got.header, got.body)
	}
	if status, _, answer := f.post(t, nil, user(text("hi"))); status != 200 {
		t.Errorf("text: %d %s", status, answer)
	}
	release()
	wg.Wait()
	eventually(t, "nothing waits", func() bool { return gauge(t, reg, "afterimage_gateway_queued_bytes", "images") == 0 })
}

// Beyond the places and the room in line requests are refused at once, with a time to come back; a client that
// leaves the line makes room at once.
func TestLineIsBounded(t *testing.T) {
	door := &admit.Config{MaxImages: 1, MaxQueued: 1, MaxWait: time.Minute, Registry: prometheus.NewRegistry()}
	f := newFleet(t, func(o *options) { o.door = door })
	reg := door.Registry.(*prometheus.Registry)
	encodes, release := f.holdEncodes()
	defer release()
	var wg sync.WaitGroup
	ask := func(ctx context.Context, seed byte) (err error) {
		own := &client.Client{Base: f.gateway.URL, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
		_, err = own.Ask(ctx, question(picture(t, 60, 60, seed)), nil)
		return err
	}
	wg.Go(func() {
		if err := ask(t.Context(), 1); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "one is in work", func() bool { return encodes.Load() == 1 })
	ctx, leave := context.WithCancel(t.Context())
	wg.Go(func() { _ = ask(ctx, 2) })
	queued := func() float64 { return gauge(t, reg, "afterimage_gateway_queued_requests", "images") }
	eventually(t, "one waits", func() bool { return queued() == 1 })
	status, header, body := f.post(t, nil, user(img(picture(t, 60, 60, 3))))
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); status != 503 || err != nil || seconds < 1 || !strings.Contains(body, `"type":"ServiceUnavailableError"`) || !strings.Contains(body, "too many requests wait") {
		t.Errorf("a third: %d %v %s", status, header, body)
	}
	leave()
	within(t, time.Second, "the client that left is out of the line", func() bool { return queued() == 0 })
	release()
	wg.Wait()
	if encodes.Load() != 1 {
		t.Errorf("%d encodes, want that of the first alone", encodes.Load())
	}
}

// P07: a body that is too large is refused by the gateway once, whatever its tenant's limits, and no worker sees
// it; one without a key is not even read.
func TestLargeBodiesEndAtTheDoor(t *testing.T) {
	f := newKeyedFleet(t, keyed(t, "", "acme"), func(o *options) { o.maxBody = 100_000 })
	calls := f.prefill.watch("/v1/chat/completions")
	body := must[[]byte](t)(json.Marshal(map[string]any{"messages": []any{user(text(strings.Repeat("x", 100_000)))}}))
	if got := f.send(t, http.MethodPost, "/v1/chat/completions", as("acme"), body); got.status != 413 || !strings.Contains(got.body, "100000") {
		t.Errorf("%d %s", got.status, got.body)
	}
	w := f.wire(t) // announces a body and sends nothing of it
	w.put(t, head("HTTP/1.1", length(1<<30)), 1<<10)
	if got, _ := w.answer(t); got.status != 401 {
		t.Errorf("without a key: %d %s", got.status, got.body)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls to a worker", n)
	}
}
