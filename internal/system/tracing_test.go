// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/control"
	"afterimage/internal/gateway"
	"afterimage/internal/tracing"
)

// exported is a span as a receiver gets it.
type exported struct {
	TraceID, SpanID, ParentSpanID, Name string
}

// receiver keeps spans.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex // guards spans
	spans []exported
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	c := &receiver{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			ResourceSpans []struct{ ScopeSpans []struct{ Spans []exported } }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("an export: %v", err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, rs := range body.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// parents collects the traceparent of each call to a worker, by path.
func (f *fleet) parents() (got func() map[string][]string) {
	var mu sync.Mutex
	seen := map[string][]string{}
	spy := func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			mu.Lock()
			defer mu.Unlock()
			seen[r.URL.Path] = append(seen[r.URL.Path], r.Header.Get(tracing.HeaderParent)+" "+r.Header.Get(tracing.HeaderState))
		}
		return false
	}
	for _, n := range []*node{f.prefill, f.encoders[0].node, f.encoders[1].node} {
		n.fail(spy)
	}
	return func() map[string][]string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

const (
	clientTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientParent = "00-" + clientTrace + "-00f067aa0ba902b7-01"
)

// traced asks about two pictures in a trace of the client's.
func (f *fleet) traced(t *testing.T, seed uint8) {
	t.Helper()
	body := must[[]byte](t)(json.Marshal(map[string]any{"messages": []any{user(text("what?"), img(picture(t, 30, 30, seed)), img(picture(t, 31, 30, seed)))}}))
	got := f.send(t, http.MethodPost, control.PathChat, map[string]string{tracing.HeaderParent: clientParent, tracing.HeaderState: "a=1"}, body)
	if got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

// TestTraceparentPasses: without a receiver of spans, the client's trace goes to every worker as it came, and none is
// made up.
func TestTraceparentPasses(t *testing.T) {
	f := newFleet(t, nil)
	seen := f.parents()
	f.traced(t, 1)
	calls := 0
	for path, all := range seen() {
		for _, got := range all {
			if calls++; got != clientParent+" a=1" {
				t.Errorf("%s got %q", path, got)
			}
		}
	}
	if calls < 4 { // geometry, prepare, encode, chat
		t.Errorf("%d calls", calls)
	}
	seen = f.parents()
	f.ask(t, "", picture(t, 30, 30, 2))
	for path, all := range seen() {
		for _, got := range all {
			if got != " " {
				t.Errorf("%s got %q, and the client sent none", path, got)
			}
		}
	}
}

// TestSpansOfARequest: each stage of a request is a span under it, and each call to a worker carries the span that it
// is made in.
func TestSpansOfARequest(t *testing.T) {
	c := newReceiver(t)
	tracer := tracing.New(tracing.Config{URL: c.URL, Service: "gateway", Every: time.Millisecond, Registry: prometheus.NewRegistry(), Logger: quiet})
	f := newFleet(t, func(o *options) { o.gateway = func(g *gateway.Config) { g.Tracer = tracer } })
	seen := f.parents()
	f.traced(t, 3)
	eventually(t, "the request has ended", func() bool { return f.gateway.count(t, "afterimage_gateway_requests_running", "") == 0 })
	within(t, 10*time.Second, "its span is there", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if s.Name == "request" {
				return true
			}
		}
		return false
	})
	tracer.Close(t.Context())

	byName := map[string][]exported{}
	for _, s := range c.spans {
		if s.TraceID != clientTrace {
			t.Errorf("%+v is of another trace", s)
		}
		byName[s.Name] = append(byName[s.Name], s)
	}
	root := byName["request"]
	if len(root) != 1 || root[0].ParentSpanID != clientParent[36:52] {
		t.Fatalf("the request's span: %+v", root)
	}
	for _, name := range []string{"read", "media", "prepare", "encode", "prefill", "stream"} {
		if len(byName[name]) == 0 {
			t.Errorf("no span %s in %+v", name, c.spans)
		}
		for _, s := range byName[name] {
			if under := s.ParentSpanID; under != root[0].SpanID {
				t.Errorf("%s is under %s", name, under)
			}
		}
	}
	for path, name := range map[string]string{control.PathPrepare: "prepare", control.PathEncode: "encode", control.PathChat: "prefill"} {
		for _, got := range seen()[path] {
			found := false
			for _, s := range byName[name] {
				found = found || strings.HasPrefix(got, "00-"+clientTrace+"-"+s.SpanID+"-01 a=1")
			}
			if !found {
				t.Errorf("%s got %q, which is no span %s of %+v", path, got, name, byName[name])
			}
		}
	}
}
