// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/gateway"
	"afterimage/internal/media"
)

// slowHost is an image host that answers nothing until it is let go.
type slowHost struct {
	*httptest.Server
	asked atomic.Int64
	let   func() // may be called more than once
}

func newSlowHost(t *testing.T, file []byte) *slowHost {
	t.Helper()
	h := &slowHost{}
	gate := make(chan struct{})
	h.let = sync.OnceFunc(func() { close(gate) })
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		select {
		case <-gate:
			_, _ = w.Write(file)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { h.let(); h.Close() })
	return h
}

// TestSlowFetchesHoldNobodyUp (F01): while 60 requests wait for an image host, health and text are answered and
// pictures that come with their requests, too; then all 60 are.
func TestSlowFetchesHoldNobodyUp(t *testing.T) {
	f := newFleet(t, nil)
	host := newSlowHost(t, picture(t, 60, 60, 9))
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			if status, _, body := f.post(t, nil, user(text("?"), imgAt(host.URL))); status != 200 {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	eventually(t, "fetches are under way", func() bool { return host.asked.Load() >= 8 })
	for range 5 {
		if err := f.ready(); err != nil {
			t.Error(err)
		}
		if got := f.send(t, http.MethodGet, "/health", nil, nil); got.status != 200 {
			t.Errorf("/health: %d", got.status)
		}
		if status, _, body := f.post(t, nil, user(text("hello"))); status != 200 {
			t.Errorf("text: %d %s", status, body)
		}
		f.ask(t, "", picture(t, 60, 60, 8))
	}
	// A request is counted when its handler ends, which may be after its client has the answer.
	eventually(t, "all but those that fetch are through", func() bool { return f.gateway.count(t, "afterimage_gateway_requests_running", "") == 60 })
	if n := f.gateway.count(t, "afterimage_gateway_requests_total", "200"); n != 10 {
		t.Errorf("%v requests were answered, want the 10 that fetch nothing", n)
	}
	host.let()
	wg.Wait()
	eventually(t, "the memory is back", f.free)
	eventually(t, "nothing that was fetched is held", func() bool { return f.gateway.count(t, "afterimage_gateway_fetched_bytes", "") == 0 })
}

// TestFetchBudget: a request waits until there is room for all that it fetches, and is told when there is none in
// time; the next finds it when others have ended or left.
func TestFetchBudget(t *testing.T) {
	file := picture(t, 60, 60, 7)
	const most = 1 << 20 // bytes of an image
	f := newFleet(t, func(o *options) {
		o.gateway = func(c *gateway.Config) { c.Limits.MaxBytes, c.Fetched = most, media.NewBudget(3*most) }
	})
	host := newSlowHost(t, file)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	two := f.start(t, ctx, nil, imgAt(host.URL+"/a"), imgAt(host.URL+"/b"))
	eventually(t, "one request has begun", func() bool { return host.asked.Load() == 2 })
	if n := f.gateway.count(t, "afterimage_gateway_fetched_bytes", ""); n != 2*most {
		t.Errorf("%v bytes reserved for two images, want %d", n, 2*most)
	}
	waits := make(chan int, 1)
	go func() {
		status, _, _ := f.post(t, nil, user(imgAt(host.URL+"/c"), imgAt(host.URL+"/d")))
		waits <- status
	}()
	f.ask(t, "", file) // which fetches nothing
	select {
	case status := <-waits:
		t.Errorf("a request without room: %d", status)
	case <-time.After(20 * time.Millisecond):
	}
	if n := host.asked.Load(); n != 2 {
		t.Errorf("%d fetches, want the 2 that there is room for", n)
	}
	leave()
	<-two
	eventually(t, "the other has begun", func() bool { return host.asked.Load() == 4 })
	host.let()
	if status := <-waits; status != 200 {
		t.Errorf("the request that waited: %d", status)
	}
	eventually(t, "nothing is held", func() bool { return f.gateway.count(t, "afterimage_gateway_fetched_bytes", "") == 0 })
}

// TestFetchLists: hosts that are denied, or not on the list, read like any that may not be asked, with their part.
func TestFetchLists(t *testing.T) {
	web := serveFile(t, picture(t, 60, 60, 6))
	must := must[media.Hosts](t)
	for name, lists := range map[string][2][]string{
		"allowed": {{"127.0.0.0/8"}, nil}, "denied": {nil, {"127.0.0.1"}}, "not on the list": {{"example.com"}, nil}, "both": {{"127.0.0.0/8"}, {"127.0.0.1"}},
	} {
		f := newFleet(t, func(o *options) {
			o.gateway = func(c *gateway.Config) {
				_, port, _ := strings.Cut(strings.TrimPrefix(web.URL, "http://"), ":")
				fetcher := media.NewFetcher(media.FetcherConfig{AllowPorts: []string{port}, Allow: must(media.ParseHosts(lists[0])), Deny: must(media.ParseHosts(lists[1]))})
				t.Cleanup(fetcher.Close)
				c.Fetcher.Close()
				c.Fetcher = fetcher
			}
		})
		status, _, body := f.post(t, nil, user(imgAt(web.URL)))
		if want := map[bool]int{true: 200, false: 400}[name == "allowed"]; status != want {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if status == 400 {
			if e := parseFailure(t, body); e.Param != "messages[0].content[0]" || !strings.Contains(e.Message, "not allowed") {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
}
