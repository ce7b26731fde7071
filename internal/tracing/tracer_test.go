// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// collector is an OTLP receiver that takes nothing but what the schema has.
type collector struct {
	*httptest.Server
	mu     sync.Mutex // guards what follows
	spans  []wireSpan
	bad    []string
	header http.Header
	status int // of the answers; 0 is 200
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.header = r.Header; c.status != 0 {
		w.WriteHeader(c.status)
		return
	}
	var req exportRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" || len(req.ResourceSpans) != 1 {
		c.bad = append(c.bad, r.URL.Path+" "+string(body))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, scoped := range req.ResourceSpans[0].ScopeSpans {
		c.spans = append(c.spans, scoped.Spans...)
	}
	_, _ = w.Write([]byte(`{"partialSuccess":{}}`))
}

// named returns the span of a name, which must be there once.
func (c *collector) named(t *testing.T, name string) (out wireSpan) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, s := range c.spans {
		if s.Name == name {
			out, n = s, n+1
		}
	}
	if n != 1 {
		t.Errorf("%d spans of the name %s in %+v", n, name, c.spans)
	}
	return out
}

func newTracer(url string, change func(*Config)) *Tracer {
	cfg := Config{URL: url + "/v1/traces", Service: "afterimage-gateway", Name: "gateway", Version: "v1", Every: time.Millisecond,
		Headers: map[string]string{"Api-Key": "k"}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func (t *Tracer) count(result string) int {
	return int(testutil.ToFloat64(t.spans.WithLabelValues(result)))
}

// TestSpans: spans arrive whole, each under the step that it was begun in, and what the calls carry is the span that
// they are made in.
func TestSpans(t *testing.T) {
	c := newCollector(t)
	tr := newTracer(c.URL, nil)
	in := httptest.NewRequest(http.MethodPost, "/", nil)
	in.Header = header(parent, "a=1")
	before := time.Now()
	ctx, request := tr.Serve(in, "request")
	inner, call := tr.Start(ctx, "prefill", Client)
	out, _ := http.NewRequestWithContext(inner, http.MethodPost, "http://h/", nil)
	Pass(out)
	call.Set("worker", "prefill-0", "images", 2, "bytes", int64(1)<<40, "share", 0.5, "none", math.NaN(), "forced", false)
	call.EndWith(errors.New("it broke"))
	call.End()
	request.End()
	tr.Close(t.Context())

	root, child := c.named(t, "request"), c.named(t, "prefill")
	if root.TraceID != parent[3:35] || root.Parent != parent[36:52] || root.Kind != Server || root.TraceState != "a=1" || root.Status != nil {
		t.Errorf("the request's span: %+v", root)
	}
	if child.Parent != root.SpanID || child.TraceID != root.TraceID || child.Kind != Client || child.Status == nil || *child.Status != (status{statusError, "it broke"}) {
		t.Errorf("the call's span: %+v, status %+v", child, child.Status)
	}
	if got := out.Header.Get(HeaderParent); got != "00-"+child.TraceID+"-"+child.SpanID+"-01" || out.Header.Get(HeaderState) != "a=1" {
		t.Errorf("the call carries %v", out.Header)
	}
	for _, s := range []wireSpan{root, child} {
		start, err1 := strconv.ParseInt(s.Start, 10, 64)
		end, err2 := strconv.ParseInt(s.End, 10, 64)
		if id, err := hex.DecodeString(s.SpanID); err1 != nil || err2 != nil || err != nil || len(id) != 8 || start < before.UnixNano() || end < start || end > time.Now().UnixNano() {
			t.Errorf("ids and times of %+v", s)
		}
	}
	b, _ := json.Marshal(child.Attributes)
	if want := `[{"key":"worker","value":{"stringValue":"prefill-0"}},{"key":"images","value":{"intValue":"2"}},{"key":"bytes","value":{"intValue":"1099511627776"}},` +
		`{"key":"share","value":{"doubleValue":0.5}},{"key":"forced","value":{"boolValue":false}}]`; string(b) != want {
		t.Errorf("attributes\n got %s\nwant %s", b, want)
	}
	if len(c.bad) > 0 || c.header.Get("Api-Key") != "k" || tr.count("exported") != 2 {
		t.Errorf("bad exports %q, header %v, %d exported", c.bad, c.header, tr.count("exported"))
	}
}

// TestNewTraces: a request without a context gets one; a trace that is not recorded goes through untouched.
func TestNewTraces(t *testing.T) {
	c := newCollector(t)
	tr := newTracer(c.URL, nil)
	ctx, s := tr.Serve(httptest.NewRequest(http.MethodPost, "/", nil), "request")
	at, ok := From(ctx)
	s.End()
	unrecorded := httptest.NewRequest(http.MethodPost, "/", nil)
	unrecorded.Header = header(parent[:53] + "00")
	ctx, none := tr.Serve(unrecorded, "other")
	if through, _ := From(ctx); none != nil || through.Parent() != parent[:53]+"00" {
		t.Errorf("not recorded: span %v, %s", none, through.Parent())
	}
	tr.Close(t.Context())
	if got := c.named(t, "request"); !ok || got.TraceID != hex.EncodeToString(at.Trace[:]) || got.Parent != "" || len(c.spans) != 1 {
		t.Errorf("a new trace: %+v, %+v", got, at)
	}
}

// TestNothingWaits: with a receiver that takes nothing in, spans end at once, those beyond the queue are dropped and
// counted, and Close ends in time.
func TestNothingWaits(t *testing.T) {
	stuck := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	defer close(stuck)
	tr := newTracer(s.URL, func(c *Config) { c.Queue, c.Batch, c.Timeout = 8, 4, time.Hour })
	ctx, root := tr.Serve(httptest.NewRequest(http.MethodPost, "/", nil), "request")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 250 {
				_, s := tr.Start(ctx, "step", Internal)
				s.End()
			}
		})
	}
	wg.Wait()
	root.End()
	if n := tr.count("dropped"); n < 1001-8-2*4 {
		t.Errorf("%d of 1001 spans dropped", n)
	}
	ended, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	tr.Close(ended)
	tr.Close(ended)
	if all := tr.count("dropped") + tr.count("failed"); all != 1001 || tr.count("exported") != 0 {
		t.Errorf("%d spans accounted for, %d exported", all, tr.count("exported"))
	}
}

// TestFailedExports are counted, told once, and followed by others.
func TestFailedExports(t *testing.T) {
	c := newCollector(t)
	c.status = http.StatusServiceUnavailable
	var log bytes.Buffer
	tr := newTracer(c.URL, func(c *Config) { c.Batch, c.Every, c.Logger = 1, time.Hour, slog.New(slog.NewTextHandler(&log, nil)) })
	end := func() {
		_, s := tr.Serve(httptest.NewRequest(http.MethodPost, "/", nil), "request")
		s.End()
	}
	counted := func(result string, n int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); tr.count(result) < n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d spans %s, want %d", tr.count(result), result, n)
			}
		}
	}
	end()
	end()
	counted("failed", 2)
	c.mu.Lock()
	c.status = 0
	c.mu.Unlock()
	end()
	counted("exported", 1)
	tr.Close(t.Context())
	if got := log.String(); strings.Count(got, "cannot be exported") != 1 || strings.Count(got, "exported again") != 1 || !strings.Contains(got, "503") {
		t.Errorf("the log says\n%s", got)
	}
}

// TestCredentialsAreNotLogged: what lets somebody in at a receiver is told to nobody else.
func TestCredentialsAreNotLogged(t *testing.T) {
	c := newCollector(t)
	at := strings.Replace(c.URL, "://", "://a-token:a-password@", 1) + "/v1/traces?key=a-secret"
	c.Close()
	var log bytes.Buffer
	tr := newTracer(at, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	_, s := tr.Serve(httptest.NewRequest(http.MethodPost, "/", nil), "request")
	s.End()
	tr.Close(t.Context())
	if got := log.String(); !strings.Contains(got, "to="+c.URL+"/v1/traces") || strings.Contains(got, "a-token") || strings.Contains(got, "a-password") || strings.Contains(got, "a-secret") {
		t.Errorf("the log says\n%s", got)
	}
}

// TestHandler: a worker's calls become spans under their caller's when they carry a context.
func TestHandler(t *testing.T) {
	c := newCollector(t)
	tr := newTracer(c.URL, nil)
	h := Handler(tr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusBadGateway)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}))
	for path, in := range map[string]http.Header{"/works": header(parent), "/fails": header(parent), "/silent": {}} {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Header = in
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	tr.Close(t.Context())
	works, fails := c.named(t, "POST /works"), c.named(t, "POST /fails")
	if works.Parent != parent[36:52] || works.Status != nil || fails.Status == nil || len(c.spans) != 2 {
		t.Errorf("spans %+v", c.spans)
	}
}
