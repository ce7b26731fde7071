// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net/http"
	"sort"
	"sync"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/openai"
)

// TraceItem says where the embedding of one media part came from.
type TraceItem struct {
	Index      int                  `json:"index"` // media part, in prompt order
	Identifier embedding.Identifier `json:"identifier"`
	Source     control.Source       `json:"source"`
	Encoder    string               `json:"encoder"`
	Rows       int                  `json:"rows"`
	Cols       int                  `json:"cols"`
	Bytes      int                  `json:"bytes"`
	MS         float64              `json:"ms"` // from the Encoder's receipt to the confirmed delivery
}

// TraceStage is a point that a request passed.
type TraceStage struct {
	Name string  `json:"name"` // read, media, prepare, prefill, total
	MS   float64 `json:"ms"`   // since the request arrived
}

// Trace is what the gateway remembers of one request. It holds no content.
type Trace struct {
	Request  string       `json:"request"`
	Done     bool         `json:"done"`
	Status   int          `json:"status,omitempty"`
	Error    string       `json:"error,omitempty"` // as the client saw it
	Prefill  string       `json:"prefill,omitempty"`
	Attempts int          `json:"attempts"`
	Items    []TraceItem  `json:"items"`
	Stages   []TraceStage `json:"stages"`
}

// trace is a Trace in the making.
type trace struct {
	start time.Time
	ended chan struct{} // closed by end
	mu    sync.Mutex    // guards t
	t     Trace
}

func (t *trace) with(f func(*Trace)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.t)
}

func (t *trace) since() float64 { return float64(time.Since(t.start)) / float64(time.Millisecond) }

func (t *trace) stage(name string) {
	t.with(func(x *Trace) { x.Stages = append(x.Stages, TraceStage{name, t.since()}) })
}

func (t *trace) attempt() {
	t.with(func(x *Trace) { x.Attempts, x.Items = x.Attempts+1, nil })
}

func (t *trace) prefill(name string) { t.with(func(x *Trace) { x.Prefill = name }) }

// item notes an Encoder's answer for every part that shows m.
func (t *trace) item(m *image, encoder string, a control.EncodedItem) {
	t.with(func(x *Trace) {
		for _, p := range m.parts {
			x.Items = append(x.Items, TraceItem{
				Index: p, Identifier: m.id, Source: a.Source, Encoder: encoder,
				Rows: a.Rows, Cols: a.Cols, Bytes: a.Bytes, MS: a.DeliveredMS,
			})
		}
	})
}

func (t *trace) end(status int, err error) {
	defer close(t.ended)
	t.stage("total")
	t.with(func(x *Trace) {
		x.Done, x.Status = true, status
		if err != nil {
			x.Error = told(err)
		}
	})
}

// copy returns the trace as it stands, items in prompt order.
func (t *trace) copy() Trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.t
	c.Items = append([]TraceItem{}, c.Items...)
	c.Stages = append([]TraceStage{}, c.Stages...)
	sort.Slice(c.Items, func(i, j int) bool { return c.Items[i].Index < c.Items[j].Index })
	return c
}

// traces remembers the latest requests under random names, so that no client finds the trace of another.
type traces struct {
	mu     sync.Mutex // guards what follows
	byName map[string]*trace
	ring   []string
	next   int
}

func newTraces(n int) *traces {
	return &traces{byName: make(map[string]*trace, n), ring: make([]string, n)}
}

// begin returns the trace of a new request, to be found under name, which is used once.
func (ts *traces) begin(name, request string) *trace {
	t := &trace{start: time.Now(), ended: make(chan struct{}), t: Trace{Request: request}}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.byName, ts.ring[ts.next])
	ts.ring[ts.next] = name
	ts.next = (ts.next + 1) % len(ts.ring)
	ts.byName[name] = t
	return t
}

func (ts *traces) get(name string) (*trace, bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t, ok := ts.byName[name]
	return t, ok
}

// traceWait is how long a question for the trace of a request in work waits for its end: a client that
// has read its answer asks at a moment at which the gateway has not.
const traceWait = 500 * time.Millisecond

// serveTrace shows one request.
func (g *Gateway) serveTrace(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("trace")
	t, ok := g.traces.get(name)
	if !ok {
		openai.WriteError(w, &openai.Error{Status: http.StatusNotFound, Type: "NotFoundError", Param: "trace",
			Message: "no trace " + name + ": the gateway remembers the latest 1024, each under the " + control.HeaderTrace + " of its answer"})
		return
	}
	select {
	case <-t.ended:
	case <-time.After(traceWait):
	case <-r.Context().Done():
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(t.copy())
}
