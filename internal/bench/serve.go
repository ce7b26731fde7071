// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/load"
	"afterimage/internal/sim"
)

// Serve puts a load on any OpenAI endpoint and measures it as clients see it.
type Serve struct {
	URL      string
	Key      string     // API key; "" sends none
	Model    string     // "" asks the server for its first
	Trace    *sim.Trace // when which request with which images is sent
	Sides    sim.Mix    // pixels of the square pictures
	Closed   int        // requests under way at once; 0 sends each when it is due
	Goal     Goal
	Seed     uint64
	Progress io.Writer // for people; nil for none
}

// Goal is what makes an answer good.
type Goal = load.Goal

// Result is what a run of Serve measured, as its JSON file holds it.
type Result struct {
	Bench       string         `json:"bench"` // "serve"
	Command     string         `json:"command"`
	Machine     string         `json:"machine"`
	Started     time.Time      `json:"started"`
	URL         string         `json:"url"`
	Model       string         `json:"model"`
	Load        string         `json:"load"` // the trace, in words
	Interrupted bool           `json:"interrupted,omitempty"`
	Goal        Goal           `json:"goal"`
	Summary     load.Summary   `json:"summary"`
	Sources     map[string]int `json:"sources,omitempty"` // images by where their embedding came from
	SpanP50MS   float64        `json:"span_p50_ms,omitempty"`
	SpanP90MS   float64        `json:"span_p90_ms,omitempty"`
	Records     []load.Record  `json:"records"`
}

// modelledName is how the modelled device calls its model; a token is a byte there.
const modelledName = "modelled"

// bytesPerToken is how much English text a token stands for, roughly, in most models.
const bytesPerToken = 4

// Run sends the load. When ctx ends first, the result holds what was measured until then and says so.
func (s Serve) Run(ctx context.Context) (Result, error) {
	if u, err := url.Parse(s.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return Result{}, fmt.Errorf("bench: %q is no endpoint; write http://HOST:PORT", s.URL)
	}
	cfg := load.Config{URL: s.URL, Key: s.Key, Client: load.NewClient(), Closed: s.Closed, Traces: true}
	defer cfg.Client.CloseIdleConnections()
	name := s.Model
	var err error
	if name == "" {
		if name, err = load.Model(ctx, cfg); err != nil {
			return Result{}, fmt.Errorf("bench: %w; is the server up? Name the model if it lists none", err)
		}
	}
	p := newProgress(s.Progress)
	defer p.end()
	p.step("making %d pictures", s.Trace.Images)
	shots, err := s.shots(name)
	if err != nil {
		return Result{}, err
	}
	m := newMeter(p, len(shots))
	cfg.Done = m.done
	r := Result{Bench: "serve", Machine: Machine(), Started: time.Now(), URL: s.URL, Model: name, Goal: s.Goal}
	stop := m.start()
	records := load.Run(ctx, cfg, shots)
	stop()
	r.finish(ctx, records, len(shots))
	switch {
	case r.Summary.Sent == 0:
		return r, errors.New("bench: interrupted before any request was answered")
	case r.Summary.OK == 0:
		return r, fmt.Errorf("bench: all %d requests failed, the first with: %s", r.Summary.Failed, r.Records[0].Error)
	}
	return r, nil
}

// shots turns the trace into requests.
func (s *Serve) shots(model string) ([]load.Shot, error) {
	r := rand.New(rand.NewPCG(s.Seed, 1))
	sides := make([]int, s.Trace.Images)
	for i := range sides {
		sides[i] = s.Sides.Pick(r)
	}
	urls, err := dataURLs(s.Trace.Images, s.Seed, func(i int) int { return sides[i] })
	if err != nil {
		return nil, err
	}
	perToken := bytesPerToken
	if model == modelledName {
		perToken = 1
	}
	shots := make([]load.Shot, len(s.Trace.Requests))
	for i, q := range s.Trace.Requests {
		c := &chatRequest{model: model, opening: fmt.Sprintf("Request %d.%d.", s.Seed, i), text: words(int(q.Text) * perToken), maxTokens: max(int(q.Output), 1)}
		shots[i] = load.Shot{At: q.At, Body: c.body}
		for _, u := range s.Trace.Uses(i) {
			c.images = append(c.images, urls[u.Image])
			shots[i].Images = append(shots[i].Images, int(u.Image))
		}
	}
	return shots, nil
}

// finish sums up. What an interruption cut off is no failure of the server.
func (r *Result) finish(ctx context.Context, records []load.Record, planned int) {
	r.Interrupted = ctx.Err() != nil && len(records) < planned
	for _, rec := range records {
		if ctx.Err() != nil && !rec.OK() {
			r.Interrupted = true
			continue
		}
		r.Records = append(r.Records, rec)
	}
	r.Summary = load.Summarize(r.Records, r.Goal)
	var spans []float64
	for i := range r.Records {
		if t := r.Records[i].Trace; t != nil && len(t.Items) > 0 {
			if r.Sources == nil {
				r.Sources = map[string]int{}
			}
			for _, it := range t.Items {
				r.Sources[string(it.Source)]++
			}
			spans = append(spans, fanOut(t))
		}
	}
	if len(spans) > 0 {
		r.SpanP50MS, r.SpanP90MS = Quantile(spans, 0.5), Quantile(spans, 0.9)
	}
}

// fanOut returns how long the images of a request took to come to P/D, in milliseconds: from when the
// gateway had read them to when Encoders had delivered all, or, if none was needed, P/D had found them.
func fanOut(t *control.Trace) float64 {
	var from, to float64
	for _, s := range t.Stages {
		switch s.Name {
		case "media":
			from = s.MS
		case "prepare", "delivered":
			to = max(to, s.MS)
		}
	}
	return max(to-from, 0)
}

// RecordTrace returns what was sent as a trace that simulate reads: with the sizes that the gateway told.
func (r *Result) RecordTrace(w io.Writer, t *sim.Trace) error {
	fmt.Fprintln(w, "time,request,image,bytes,text_tokens,output_tokens")
	for i := range r.Records {
		rec := &r.Records[i]
		q := t.Requests[rec.Index]
		for k, u := range t.Uses(rec.Index) {
			size := int(u.Bytes)
			if rec.Trace != nil && k < len(rec.Trace.Items) && rec.Trace.Items[k].Bytes > 0 {
				size = rec.Trace.Items[k].Bytes
			}
			fmt.Fprintf(w, "%.6f,%d,%d,%d,%d,%d\n", rec.DueMS/1000, rec.Index, u.Image, size, q.Text, rec.Tokens)
		}
		if len(t.Uses(rec.Index)) == 0 {
			fmt.Fprintf(w, "%.6f,%d,,,%d,%d\n", rec.DueMS/1000, rec.Index, q.Text, rec.Tokens)
		}
	}
	return nil
}
