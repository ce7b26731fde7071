// SPDX-License-Identifier: Apache-2.0

package top

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"afterimage/internal/control"
	"afterimage/internal/gateway"
	"afterimage/internal/store"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// seen is a request of one picture as a gateway tells of it.
func seen(number uint64, source control.Source) gateway.SeenRequest {
	return gateway.SeenRequest{Number: number, Begun: noon, Trace: control.Trace{Done: true, Status: 200, Prefill: "prefill-0",
		Items: []control.TraceItem{{Source: source}}, Stages: []control.TraceStage{{Name: "read", MS: 1}, {Name: "total", MS: 150}}}}
}

// event is what a gateway tells after n requests, all but the first of which reused their picture.
func event(n uint64) Event {
	e := Event{Version: "v1"}
	e.Revision = n
	e.Encoders = []gateway.Member{{Name: "encoder-1", Up: true, Model: "m"}, {Name: "encoder-0", Why: "does not answer"}}
	e.Prefills = []gateway.Member{{Name: "prefill-0", Up: true, Running: 2, Waiting: 1, Model: "m"}}
	e.Decodes = []gateway.Member{{Name: "decode-0", Up: true, Running: 1, Model: "m"}}
	e.Totals = gateway.Totals{Requests: n, Images: n, Bytes: n << 20, Sources: map[control.Source]uint64{control.SourceEncoded: 1, control.SourceStore: n - 1}}
	e.Requests = []gateway.SeenRequest{seen(n, control.SourceStore)}
	e.Store = &store.Totals{Bytes: 1 << 20, LimitBytes: 4 << 20, Objects: 1, Gets: 4, Hits: 3}
	return e
}

func TestSnapshot(t *testing.T) {
	v := NewViewer("http://g")
	v.Add(event(1), noon)
	if got := v.Snapshot(noon).Requests.PerSecond; got != 0 {
		t.Errorf("the first snapshot has a rate of %v", got)
	}
	v.Add(event(21), noon.Add(4*time.Second))
	v.Measure(Series{Running: 3, FirstByte: Histogram{Bounds: []float64{0.1, 0.2}, Counts: []uint64{10, 20}}})
	s := v.Snapshot(noon.Add(5 * time.Second))
	wantRequests := Requests{Ended: 21, Running: 3, PerSecond: 4, FirstByteP50MS: 100, FirstByteP95MS: 190}
	if d := cmp.Diff(wantRequests, s.Requests); d != "" {
		t.Error(d)
	}
	if s.Images.Reused != 20 || s.Images.PerSecond != 4 || s.Images.HitRate != 20.0/21 {
		t.Errorf("images: %+v", s.Images)
	}
	var names []string
	for _, w := range s.Workers {
		names = append(names, w.Role+" "+w.Name)
	}
	if got := strings.Join(names, ", "); got != "encoder encoder-0, encoder encoder-1, prefill prefill-0, decode decode-0" {
		t.Errorf("workers: %s", got)
	}
	if len(s.Latest) != 2 || s.Latest[0].Number != 21 || s.Latest[0].MS != 150 {
		t.Errorf("latest: %+v", s.Latest)
	}
}

// What is quiet for longer than the window has a rate of nothing.
func TestRatesForget(t *testing.T) {
	v := NewViewer("")
	for i := range 40 {
		v.Add(event(10), noon.Add(time.Duration(i)*time.Second))
	}
	if n := len(v.samples); n > 12 {
		t.Errorf("%d samples are kept", n)
	}
	if got := v.Snapshot(noon.Add(40 * time.Second)).Requests.PerSecond; got != 0 {
		t.Errorf("rate %v, want 0", got)
	}
}

// A gateway that was restarted begins afresh, and old requests of one that runs are forgotten.
func TestViewerForgets(t *testing.T) {
	v := NewViewer("")
	for n := range uint64(300) {
		v.Add(event(n+1), noon)
	}
	if got := len(v.Snapshot(noon).Latest); got > keptRequests {
		t.Errorf("%d requests are kept, want at most %d", got, keptRequests)
	}
	v.Add(event(1), noon)
	if got := v.Snapshot(noon); len(got.Latest) != 1 || got.Requests.PerSecond != 0 {
		t.Errorf("after a restart: %+v", got)
	}
}

func TestQuantile(t *testing.T) {
	f := func(h Histogram, q, want float64) {
		t.Helper()
		if got := h.Quantile(q); got != want {
			t.Errorf("%+v: quantile %v is %v, want %v", h, q, got, want)
		}
	}
	f(Histogram{}, 0.5, 0)
	f(Histogram{Bounds: []float64{1}, Counts: []uint64{0}}, 0.5, 0)
	f(Histogram{Bounds: []float64{1, 2}, Counts: []uint64{2, 4}}, 0.25, 0.5)
	f(Histogram{Bounds: []float64{1, 2}, Counts: []uint64{2, 4}}, 0.75, 1.5)
	f(Histogram{Bounds: []float64{1, 2, 4}, Counts: []uint64{0, 0, 4}}, 0.5, 3)
}

func TestReadSeries(t *testing.T) {
	s, err := ReadSeries(strings.NewReader(`# TYPE afterimage_gateway_requests_running gauge
afterimage_gateway_requests_running 2
# TYPE afterimage_gateway_first_byte_seconds histogram
afterimage_gateway_first_byte_seconds_bucket{le="0.5"} 1
afterimage_gateway_first_byte_seconds_bucket{le="+Inf"} 4
afterimage_gateway_first_byte_seconds_sum 3
afterimage_gateway_first_byte_seconds_count 4
`))
	if err != nil || s.Running != 2 || s.FirstByte.Quantile(0.25) != 0.5 || s.FirstByte.Quantile(0.95) != 0.5 {
		t.Errorf("got %+v (%v)", s, err)
	}
	if _, err := ReadSeries(strings.NewReader("not metrics {")); err == nil {
		t.Error("nonsense is read")
	}
}
