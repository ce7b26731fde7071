// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/admit"
	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// trace is a Trace in the making.
type trace struct {
	start    time.Time
	number   uint64         // grows by one per request
	ended    chan struct{}  // closed by end
	tenant   string         // whose request it is
	latest   *atomic.Uint64 // revision of all traces
	revision atomic.Uint64  // of all traces, when this one changed last
	mu       sync.Mutex     // guards t
	t        control.Trace
}

func (t *trace) with(f func(*control.Trace)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.t)
	t.revision.Store(t.latest.Add(1))
}

func (t *trace) since() float64 { return float64(time.Since(t.start)) / float64(time.Millisecond) }

func (t *trace) stage(name string) {
	t.with(func(x *control.Trace) { x.Stages = append(x.Stages, control.TraceStage{Name: name, MS: t.since()}) })
}

func (t *trace) attempt() {
	t.with(func(x *control.Trace) { x.Attempts, x.Items, x.Decode = x.Attempts+1, nil, "" })
}

// decode notes that a decode worker is to go on from a state of so many bytes.
func (t *trace) decode(name string, bytes int) {
	t.with(func(x *control.Trace) { x.Decode, x.HandOffBytes = name, bytes })
}

// handedOff notes the time of the delivery.
func (t *trace) handedOff(ms float64) { t.with(func(x *control.Trace) { x.HandOffMS = ms }) }

// firstByte notes that an answer begins: that of a P/D, or of a decode worker, to a call that was made at sent. An answer
// that comes as a whole says when its first token was there.
func (t *trace) firstByte(sent float64, firstToken string) {
	t.with(func(x *control.Trace) {
		s := control.TraceStage{Name: "prefill", MS: t.since()}
		if x.Decode != "" {
			s.Name = "handoff"
		}
		if took, err := strconv.ParseFloat(firstToken, 64); err == nil && took >= 0 {
			s.MS = min(s.MS, sent+took)
		}
		if n := len(x.Stages); n > 0 { // clocks of two processes
			s.MS = max(s.MS, x.Stages[n-1].MS)
		}
		x.Stages = append(x.Stages, s)
	})
}

func (t *trace) prefill(name string) { t.with(func(x *control.Trace) { x.Prefill = name }) }

// prepared notes what P/D said of its times.
func (t *trace) prepared(a *control.PrepareResponse) {
	t.with(func(x *control.Trace) { x.StoreMS, x.GrantMS = a.StoreMS, a.GrantMS })
}

// add notes, for every part that shows m, where its embedding came from.
func (t *trace) add(m *image, it control.TraceItem) {
	it.Identifier, it.Cols, it.Fetch = m.id, m.want.Cols, string(m.how)
	t.with(func(x *control.Trace) {
		for _, it.Index = range m.parts {
			x.Items = append(x.Items, it)
		}
	})
}

// item notes an Encoder's answer.
func (t *trace) item(m *image, encoder string, a control.EncodedItem) {
	t.add(m, control.TraceItem{Source: a.Source, Encoder: encoder, Rows: a.Rows, Bytes: a.Bytes,
		MS: a.DeliveredMS, QueueMS: a.QueueMS, TransferMS: a.DeliveredMS - a.ResolvedMS})
}

// held notes what needs no Encoder.
func (t *trace) held(m *image, a control.PreparedItem) {
	t.add(m, control.TraceItem{Source: a.Source, Rows: cmp.Or(a.Rows, m.geo.Rows), Bytes: a.Bytes})
}

// arrived takes in P/D's word on how embeddings came.
func (t *trace) arrived(images []*image, header string) {
	var came []control.Arrival
	if header == "" || json.Unmarshal([]byte(header), &came) != nil {
		return
	}
	t.with(func(x *control.Trace) {
		for _, a := range came {
			if a.Index < 0 || a.Index >= len(images) {
				continue
			}
			for i := range x.Items {
				if it := &x.Items[i]; slices.Contains(images[a.Index].parts, it.Index) {
					it.Road, it.Bytes = a.Road, a.Bytes
					it.WaitMS = a.WaitMS
				}
			}
		}
	})
}

func (t *trace) end(status int, err error) {
	defer close(t.ended)
	t.stage("total")
	t.with(func(x *control.Trace) {
		x.Done, x.Status = true, status
		if err != nil {
			x.Error = told(err)
		}
	})
}

// copy returns the trace as it stands, items in prompt order.
func (t *trace) copy() control.Trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.t
	c.Items = append([]control.TraceItem{}, c.Items...)
	c.Stages = append([]control.TraceStage{}, c.Stages...)
	sort.Slice(c.Items, func(i, j int) bool { return c.Items[i].Index < c.Items[j].Index })
	return c
}

// traces remembers the latest requests under random names, so that no client finds the trace of another.
type traces struct {
	revision atomic.Uint64 // grows with every change of a trace

	mu     sync.Mutex // guards what follows
	byName map[string]*trace
	ring   []string
	next   int
	number uint64 // of the last request
}

func newTraces(n int) *traces {
	return &traces{byName: make(map[string]*trace, n), ring: make([]string, n)}
}

// begin returns the trace of a new request, to be found under name, which is used once.
func (ts *traces) begin(name, request, tenant string) *trace {
	t := &trace{tenant: tenant, start: time.Now(), ended: make(chan struct{}), latest: &ts.revision, t: control.Trace{Request: request}}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.number++
	t.number = ts.number
	t.revision.Store(ts.revision.Add(1))
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
	if !ok || !admit.From(r.Context()).Sees(t.tenant) {
		openai.WriteError(w, &openai.Error{Status: http.StatusNotFound, Type: "NotFoundError", Param: "trace",
			Message: "no trace " + openai.Shorten(name) + ": the gateway remembers the latest 1024, each under the " + control.HeaderTrace + " of its answer"})
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
