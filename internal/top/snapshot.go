// SPDX-License-Identifier: Apache-2.0

// Package top shows a fleet in a terminal: its workers, what its requests came to, how much was reused, and how
// full the Store is.
//
// What it shows comes from a gateway: the events that the gateway's page lives on (Feed), and a few series of its
// metrics. A Viewer makes Snapshots of them, which are plain data, and Render makes lines of one, which a Screen
// draws. Feed has one goroutine; everything else belongs to the goroutine of its caller. Like the page, it sees no
// prompts, pictures, addresses or names of requests.
package top

import (
	"cmp"
	"slices"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/gateway"
	"afterimage/internal/store"
)

// Snapshot is a fleet at one moment. Rates cover the last seconds, and are 0 in the first.
type Snapshot struct {
	Time     time.Time     `json:"time"`
	URL      string        `json:"url"` // of the gateway
	Version  string        `json:"version"`
	Note     string        `json:"note,omitempty"` // why what follows is not up to date
	Workers  []Worker      `json:"workers"`
	Requests Requests      `json:"requests"`
	Images   Images        `json:"images"`
	Store    *store.Totals `json:"store,omitempty"`
	// StoreNote says why there are no totals of the Store.
	StoreNote string    `json:"store_note,omitempty"`
	Latest    []Request `json:"latest"` // the latest requests, newest first
}

// Worker is a worker of the fleet.
type Worker struct {
	Role string `json:"role"`
	gateway.Member
}

// Requests sums up the chat requests since the gateway started.
type Requests struct {
	Ended          uint64  `json:"ended"`
	Failed         uint64  `json:"failed"`
	Running        int     `json:"running"`
	PerSecond      float64 `json:"per_second"`
	FirstByteP50MS float64 `json:"first_byte_p50_ms"` // 0 before the first
	FirstByteP95MS float64 `json:"first_byte_p95_ms"`
}

// Images sums up the distinct images of requests since the gateway started.
type Images struct {
	Seen      uint64                    `json:"seen"`
	Reused    uint64                    `json:"reused"`   // not encoded for their request
	HitRate   float64                   `json:"hit_rate"` // of Seen, those reused: 0 to 1
	PerSecond float64                   `json:"per_second"`
	Bytes     uint64                    `json:"bytes"` // of embeddings
	Sources   map[control.Source]uint64 `json:"sources"`
}

// Request is one request.
type Request struct {
	Number  uint64                    `json:"number"`
	Begun   time.Time                 `json:"begun"`
	Done    bool                      `json:"done"`
	Status  int                       `json:"status,omitempty"` // once done
	MS      float64                   `json:"ms"`               // until its latest stage
	Prefill string                    `json:"prefill,omitempty"`
	Decode  string                    `json:"decode,omitempty"` // who gave the answer, where it is not Prefill
	Sources map[control.Source]uint64 `json:"sources"`          // of its images
}

// Event is what the gateway tells.
type Event struct {
	gateway.View
	Version   string        `json:"version"`
	Store     *store.Totals `json:"store"`
	StoreNote string        `json:"store_note"`
}

// rateWindow is how far back rates reach.
const rateWindow = 10 * time.Second

// keptRequests is how many requests a Viewer remembers.
const keptRequests = 100

// Viewer makes Snapshots of what it is told. It is for one goroutine.
type Viewer struct {
	url      string
	last     Event
	series   Series
	requests map[uint64]Request
	samples  []sample // of the last rateWindow, oldest first
	note     string
}

type sample struct {
	at               time.Time
	requests, images uint64
}

// NewViewer returns a Viewer of the gateway at url.
func NewViewer(url string) *Viewer { return &Viewer{url: url, requests: map[uint64]Request{}} }

// Add takes in an event that came at a time.
func (v *Viewer) Add(e Event, at time.Time) {
	if e.Totals.Requests < v.last.Totals.Requests || e.Revision < v.last.Revision { // another gateway
		v.requests, v.samples = map[uint64]Request{}, nil
	}
	v.last, v.note = e, ""
	for _, r := range e.Requests {
		v.requests[r.Number] = requestOf(r)
	}
	for n := range v.requests {
		if len(v.requests) > keptRequests && n+keptRequests <= v.newest() {
			delete(v.requests, n)
		}
	}
	v.samples = append(v.samples, sample{at, e.Totals.Requests, e.Totals.Images})
	for len(v.samples) > 2 && at.Sub(v.samples[1].at) >= rateWindow {
		v.samples = v.samples[1:]
	}
}

func (v *Viewer) newest() (n uint64) {
	for number := range v.requests {
		n = max(n, number)
	}
	return n
}

// Measure takes in series of the gateway's metrics.
func (v *Viewer) Measure(s Series) { v.series = s }

// Lose says why nothing is heard; the next event ends it.
func (v *Viewer) Lose(why string) { v.note = why }

// Snapshot returns the state at a time.
func (v *Viewer) Snapshot(now time.Time) Snapshot {
	t := v.last.Totals
	s := Snapshot{
		Time: now, URL: v.url, Version: v.last.Version, Note: v.note, Store: v.last.Store, StoreNote: v.last.StoreNote, Latest: []Request{},
		Requests: Requests{Ended: t.Requests, Failed: t.Failed, Running: int(v.series.Running),
			FirstByteP50MS: 1000 * v.series.FirstByte.Quantile(0.5), FirstByteP95MS: 1000 * v.series.FirstByte.Quantile(0.95)},
		Images: Images{Seen: t.Images, Bytes: t.Bytes, Sources: t.Sources, Reused: t.Images - min(t.Images, t.Sources[control.SourceEncoded])},
	}
	if t.Images > 0 {
		s.Images.HitRate = float64(s.Images.Reused) / float64(t.Images)
	}
	s.Requests.PerSecond, s.Images.PerSecond = v.rates(now)
	s.Workers = slices.Concat(workersOf("encoder", v.last.Encoders), workersOf("prefill", v.last.Prefills), workersOf("decode", v.last.Decodes))
	for _, r := range v.requests {
		s.Latest = append(s.Latest, r)
	}
	slices.SortFunc(s.Latest, func(a, b Request) int { return cmp.Compare(b.Number, a.Number) })
	return s
}

// rates are what ended and what was seen per second, over what the samples reach back.
func (v *Viewer) rates(now time.Time) (requests, images float64) {
	if len(v.samples) == 0 {
		return 0, 0
	}
	first, last := v.samples[0], v.samples[len(v.samples)-1]
	seconds := now.Sub(first.at).Seconds()
	if seconds < 1 {
		return 0, 0
	}
	return float64(last.requests-first.requests) / seconds, float64(last.images-first.images) / seconds
}

// workersOf returns the workers of one role by name.
func workersOf(role string, members []gateway.Member) []Worker {
	var out []Worker
	for _, m := range members {
		out = append(out, Worker{Role: role, Member: m})
	}
	slices.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func requestOf(r gateway.SeenRequest) Request {
	out := Request{Number: r.Number, Begun: r.Begun, Done: r.Done, Status: r.Status, Prefill: r.Prefill, Decode: r.Decode, Sources: map[control.Source]uint64{}}
	for _, it := range r.Items {
		out.Sources[it.Source]++
	}
	if n := len(r.Stages); n > 0 {
		out.MS = r.Stages[n-1].MS
	}
	return out
}
