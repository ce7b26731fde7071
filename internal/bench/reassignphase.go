// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/load"
)

// Phase is one pass over the requests, with all times as they would be at scale 1.
type Phase struct {
	Name     string        `json:"name"`
	Wall     float64       `json:"wall_s"` // from the first request's due time to the last answer
	Counters counters      `json:"counters"`
	Records  []load.Record `json:"records"`
	Traffic  [][3]float64  `json:"traffic,omitempty"` // seconds, bytes read from the Store, bytes in it
}

// times returns a figure of each answered request, without those that have none.
func (p *Phase) times(of func(*load.Record) float64) []float64 {
	var out []float64
	for i := range p.Records {
		if r := &p.Records[i]; r.OK() {
			if v := of(r); v > 0 {
				out = append(out, v)
			}
		}
	}
	return out
}

// quantile returns a quantile of a figure in milliseconds.
func (p *Phase) quantile(of func(*load.Record) float64, q float64) float64 {
	return Quantile(p.times(of), q)
}

// The figures of a record.
func ttftOf(r *load.Record) float64 { return r.TTFTMS }
func tpotOf(r *load.Record) float64 { return r.TPOTMS }
func lagOf(r *load.Record) float64  { return r.LagMS }
func spanOf(r *load.Record) float64 {
	if r.Trace == nil {
		return 0
	}
	return fanOut(r.Trace)
}

// answered counts the requests that were answered to their end.
func (p *Phase) answered() int { return len(p.times(func(r *load.Record) float64 { return r.EndMS })) }

// sources counts images by where their embedding came from.
func (p *Phase) sources() map[control.Source]int {
	out := map[control.Source]int{}
	for _, r := range p.Records {
		if r.Trace != nil {
			for _, it := range r.Trace.Items {
				out[it.Source]++
			}
		}
	}
	return out
}

// pass describes how to go over the requests once.
type pass struct {
	name      string
	routes    routes
	closed    int // requests under way at once; 0 sends them when they are due
	maxTokens int
	// images are the pictures of each request; nil gives each request new ones.
	images [][]int
}

// run goes over the requests and counts what that took.
func (r *Reassign) run(ctx context.Context, f *roles, p pass) (*Phase, error) {
	before, err := f.count(ctx)
	if err != nil {
		return nil, err
	}
	ph := &Phase{Name: p.name}
	traffic := f.watch(ctx, r.scale())
	cfg := load.Config{URL: f.gateway, Client: load.NewClient(), Closed: p.closed, Traces: true}
	defer cfg.Client.CloseIdleConnections()
	m := newMeter(r.progress, len(p.routes.at))
	cfg.Done = m.done
	stop := m.start()
	begun := time.Now()
	ph.Records = load.Run(ctx, cfg, r.shots(p))
	ph.Wall = time.Since(begun).Seconds() * r.scale()
	stop()
	ph.Traffic = traffic()
	if ctx.Err() != nil {
		return ph, context.Cause(ctx)
	}
	for _, rec := range ph.Records {
		if !rec.OK() {
			return ph, fmt.Errorf("bench: %s: request %d: %s", p.name, rec.Index, rec.Error)
		}
	}
	if err := f.drained(ctx); err != nil {
		return ph, err
	}
	after, err := f.count(ctx)
	if err != nil {
		return ph, err
	}
	ph.Counters = after.since(before)
	ph.Counters.BusySeconds *= r.scale()
	for i := range ph.Records {
		unscale(&ph.Records[i], r.scale())
	}
	return ph, nil
}

// shots turns a pass into requests.
func (r *Reassign) shots(p pass) []load.Shot {
	shots := make([]load.Shot, len(p.routes.at))
	for i, at := range p.routes.at {
		// The opening differs in every request of every pass, so that no prompt begins as another did.
		c := &chatRequest{model: r.model, opening: fmt.Sprintf("%s %d.", p.name, i), maxTokens: p.maxTokens}
		c.text = words(max(r.TextTokens*r.bytesPerToken-len(c.opening), 1))
		shots[i] = load.Shot{At: time.Duration(float64(at) / r.scale()), Body: c.body, Header: map[string]string{}}
		if p.routes.prefills != nil {
			shots[i].Header[control.HeaderPrefill] = strconv.Itoa(p.routes.prefills[i])
		}
		if e := p.routes.encoderHeader(i); e != "" {
			shots[i].Header[control.HeaderEncoder] = e
		}
		for _, n := range r.imagesOf(&p, i) {
			c.images = append(c.images, r.pictures[n])
			shots[i].Images = append(shots[i].Images, n)
		}
	}
	return shots
}

// imagesOf returns the pictures of request i.
func (r *Reassign) imagesOf(p *pass, i int) []int {
	if p.images != nil {
		return p.images[i]
	}
	out := make([]int, r.Images)
	for k := range out {
		out[k] = i*r.Images + k
	}
	return out
}

// unscale gives a record the times that it would have at scale 1.
func unscale(r *load.Record, scale float64) {
	for _, v := range []*float64{&r.DueMS, &r.LagMS, &r.TTFTMS, &r.EndMS, &r.TPOTMS} {
		*v *= scale
	}
	if r.Trace == nil {
		return
	}
	r.Trace.StoreMS *= scale
	r.Trace.GrantMS *= scale
	for i := range r.Trace.Items {
		it := &r.Trace.Items[i]
		for _, v := range []*float64{&it.MS, &it.QueueMS, &it.TransferMS, &it.WaitMS} {
			*v *= scale
		}
	}
	for i := range r.Trace.Stages {
		r.Trace.Stages[i].MS *= scale
	}
}
