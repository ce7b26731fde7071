// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shots(n int) []Shot {
	out := make([]Shot, n)
	for i := range out {
		out[i] = Shot{At: time.Duration(i) * time.Millisecond, Images: []int{i}, Body: func() (io.Reader, int64) {
			b := fmt.Sprintf(`{"n":%d}`, i)
			return strings.NewReader(b), int64(len(b))
		}}
	}
	return out
}

// serve starts a server and returns how to load it.
func serve(t *testing.T, h http.HandlerFunc) Config {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	cfg := Config{URL: s.URL, Client: NewClient()}
	t.Cleanup(cfg.Client.CloseIdleConnections)
	return cfg
}

const good = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n" +
	"data: {\"choices\":[],\"usage\":{\"completion_tokens\":7}}\n\ndata: [DONE]\n\n"

// TestOpenLoopDoesNotWait answers nothing before all requests are there: a generator that waits for answers
// would never send the second.
func TestOpenLoopDoesNotWait(t *testing.T) {
	const n = 20
	var all sync.WaitGroup
	all.Add(n)
	cfg := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		all.Done()
		all.Wait()
		io.WriteString(w, good)
	})
	records := Run(t.Context(), cfg, shots(n))
	s := Summarize(records, Goal{})
	if s.OK != n || s.Sent != n || s.Tokens != 7*n || s.TTFT.N != n || s.Good != n || s.ITL.N != n {
		t.Errorf("%+v", s)
	}
	for i, r := range records {
		// The first waits for the last: it is charged for that from when it was due.
		if r.Index != i || r.TTFTMS < float64(n-1-i)-1 || r.TTFTMS > r.EndMS || r.Images[0] != i {
			t.Errorf("record %d: %+v", i, r)
		}
	}
}

func TestClosedLoopKeepsToItsNumber(t *testing.T) {
	var under, most atomic.Int64
	cfg := serve(t, func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), under.Add(1)))
		io.Copy(io.Discard, r.Body)
		under.Add(-1)
		io.WriteString(w, good)
	})
	cfg.Closed = 1
	if s := Summarize(Run(t.Context(), cfg, shots(10)), Goal{}); s.OK != 10 || most.Load() != 1 {
		t.Errorf("%d answered, %d at once", s.OK, most.Load())
	}
}

// TestFaultsAreToldApart serves one broken answer of each kind.
func TestFaultsAreToldApart(t *testing.T) {
	f := func(answer func(w http.ResponseWriter), want string) {
		t.Helper()
		cfg := serve(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			answer(w)
		})
		got := Run(t.Context(), cfg, shots(1))
		if len(got) != 1 || !strings.Contains(got[0].Error, want) {
			t.Errorf("%+v, want an error with %q", got, want)
		}
		if s := Summarize(got, Goal{}); s.Failed != 1 || s.OK != 0 || s.TTFT.N != 0 {
			t.Errorf("counted as %+v", s)
		}
	}
	text := func(s string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { io.WriteString(w, s) }
	}
	f(func(w http.ResponseWriter) { http.Error(w, "too much", http.StatusTooManyRequests) }, "429 Too Many Requests: too much")
	f(text("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"), "cut off")
	f(text("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n"), "without a finish reason")
	f(text("data: {\"error\":{\"message\":\"oh\"}}\n\n"), "cut off: oh")
	f(text("data: {\n\n"), "not JSON")
	f(text(""), "cut off")
	cfg := Config{URL: "http://127.0.0.1:1", Client: NewClient()}
	if got := Run(t.Context(), cfg, shots(2)); len(got) != 2 || !strings.Contains(got[0].Error, "refused") {
		t.Errorf("an endpoint that is not there: %+v", got)
	}
}

// TestInterrupted ends the context while a request is under way: it ends, and those that were not sent are left
// out.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	late := shots(2)
	late[1].At = time.Hour
	got := Run(ctx, cfg, late)
	if len(got) != 1 || got[0].OK() {
		t.Errorf("%+v, want the one that was cut", got)
	}
}

func TestModel(t *testing.T) {
	cfg := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	if m, err := Model(t.Context(), cfg); m != "m" || err != nil {
		t.Errorf("%q, %v", m, err)
	}
	cfg.URL = "http://127.0.0.1:1"
	if _, err := Model(t.Context(), cfg); err == nil {
		t.Error("no server, no error")
	}
}

func TestHistogramIsNear(t *testing.T) {
	var h, half, other Histogram
	if !math.IsNaN(h.Quantile(0.5)) || !math.IsNaN(h.Mean()) {
		t.Error("nothing has a median")
	}
	for i := range 100_000 {
		d := time.Duration(i+1) * 37 * time.Microsecond
		h.Add(d)
		if i%2 == 0 {
			half.Add(d)
		} else {
			other.Add(d)
		}
	}
	half.Merge(&other)
	for _, q := range []float64{0.001, 0.1, 0.5, 0.9, 0.99, 0.9999, 1} {
		want := q * 100_000 * 0.037
		if got := h.Quantile(q); math.Abs(got/want-1) > 1.0/64+0.001 || got != half.Quantile(q) {
			t.Errorf("q%v: %v (merged %v), want about %v ms", q, got, half.Quantile(q), want)
		}
	}
	h.Add(-time.Second)
	h.Add(1000 * time.Hour)
	if c := h.Curve(); c[len(c)-1][1] != 1 || h.Quantile(0) != 0 {
		t.Errorf("the curve ends at %v, least %v", c[len(c)-1], h.Quantile(0))
	}
	for us := int64(0); us < maxUS; us = us*2 + 1 {
		if b := bucketOf(us); upper(b) < us || us > 0 && bucketOf(upper(b)+1) != b+1 {
			t.Errorf("%d us is in bucket %d, which ends at %d", us, b, upper(b))
		}
	}
}
