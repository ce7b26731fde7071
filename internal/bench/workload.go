// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Workloads holds routing against the Store: what each of them, none and both make of events that move images
// from one Encoder to another.
type Workloads struct {
	Reassign           // requests, images, rate, scale, device
	Workloads []string // of AllWorkloads
	Policies  []string // of AllPolicies
	Distinct  int      // images
}

// AllWorkloads lists the events. reassign: every image's Encoder is exchanged for the other, which lacks it. replace:
// others take the place of both Encoders, so that none has anything. hot-spot: most requests ask for few images.
// scale-out: a third Encoder joins. encoder-loss: one of three Encoders dies.
func AllWorkloads() []string {
	return []string{"reassign", "replace", "hot-spot", "scale-out", "encoder-loss"}
}

// AllPolicies lists the policies. none: any Encoder, caches of their own. affinity: the gateway chooses, by what caches
// hold, else by the image's name. store: any Encoder, and the Store. both: affinity and the Store.
func AllPolicies() []string { return []string{"none", "affinity", "store", "both"} }

// DefaultWorkloads returns all of them, at a scale that takes a few minutes.
func DefaultWorkloads() Workloads {
	r := DefaultReassign()
	r.Requests, r.Scale = 32, 4
	r.Profile.Prefill = 100 * time.Microsecond // so that what Encoders do shows in the time to first token
	return Workloads{Reassign: r, Workloads: AllWorkloads(), Policies: AllPolicies(), Distinct: 48}
}

// Cell is what one workload came to under one policy, times as at scale 1.
type Cell struct {
	Workload  string  `json:"workload"`
	Policy    string  `json:"policy"`
	Items     int     `json:"items"`
	Reencoded float64 `json:"reencoded"`
	P50       float64 `json:"ttft_p50_ms"`
	P90       float64 `json:"ttft_p90_ms"`
	P99       float64 `json:"ttft_p99_ms"`
	Spread    float64 `json:"spread"` // items of the busiest Encoder over the mean
	StoreRead float64 `json:"store_read_bytes"`
	StoreHeld float64 `json:"store_held_bytes"`
}

// workloadPrefills is the number of P/Ds; they are not what is looked at.
const workloadPrefills = 4

// RunTable measures all cells. On an error it returns those that were measured until then.
func (w Workloads) RunTable(ctx context.Context) ([]Cell, error) {
	if err := w.validate(); err != nil {
		return nil, err
	}
	for _, c := range [][2][]string{{w.Workloads, AllWorkloads()}, {w.Policies, AllPolicies()}} {
		for _, name := range c[0] {
			if !slices.Contains(c[1], name) {
				return nil, fmt.Errorf("bench: unknown %q; there are %q", name, c[1])
			}
		}
	}
	w.progress = newProgress(w.Progress)
	defer w.progress.end()
	w.Profile.Scale = w.Scale
	w.model, w.bytesPerToken = modelledName, 1
	var err error
	if w.pictures, err = dataURLs(w.Distinct, w.Seed, func(int) int { return pictureSide }); err != nil {
		return nil, err
	}
	var cells []Cell
	for _, workload := range w.Workloads {
		for _, policy := range w.Policies {
			c, err := w.cell(ctx, workload, policy)
			if err != nil {
				return cells, err
			}
			cells = append(cells, c)
		}
	}
	return cells, nil
}

// cell measures one workload under one policy in a fleet of its own.
func (w *Workloads) cell(ctx context.Context, workload, policy string) (Cell, error) {
	spec := rolesSpec{
		encoders: 2, prefills: workloadPrefills, store: policy == "store" || policy == "both", delivery: "p2p",
		storeBytes: 256 * mib, encoderCache: 192 * mib, encoderArena: 320 * mib, prefillArena: 128 * mib,
	}
	switch workload {
	case "scale-out", "encoder-loss":
		spec.encoders = 3
	case "replace":
		spec.encoders = 4
	}
	c := Cell{Workload: workload, Policy: policy}
	err := w.fleet(ctx, workload+", "+policy, spec, func(f *roles) error {
		ph, err := w.measure(ctx, f, workload, policy)
		if err == nil {
			c.fill(ph)
		}
		return err
	})
	return c, err
}

// fill takes the figures of a phase over.
func (c *Cell) fill(p *Phase) {
	c.P50, c.P90, c.P99 = p.quantile(ttftOf, 0.5), p.quantile(ttftOf, 0.9), p.quantile(ttftOf, 0.99)
	c.Reencoded, c.StoreRead, c.StoreHeld = p.Counters.Encodes, p.Counters.StoreRead, p.Counters.StoreBytes
	most, sum, n := 0.0, 0.0, 0
	for _, items := range p.Counters.PerEncoder {
		most, sum = max(most, items), sum+items
		n++
	}
	c.Items = int(sum)
	if sum > 0 {
		c.Spread = most * float64(n) / sum
	}
}

// measure seeds the fleet, lets the event happen, and goes over the requests.
func (w *Workloads) measure(ctx context.Context, f *roles, workload, policy string) (*Phase, error) {
	all := f.encoders
	if workload == "scale-out" || workload == "replace" { // the others are there, and its gateway does not know them yet
		f.encoders = all[:2]
		if err := f.anotherGateway(ctx); err != nil {
			return nil, err
		}
	}
	seeds, err := w.seeds(ctx, f, workload, policy)
	if err != nil {
		return nil, err
	}
	if _, err := w.runItems(ctx, f, workload+" "+policy+" seeding", seeds, true); err != nil {
		return nil, err
	}
	err = poll(ctx, "the gateway knows what Encoders hold", func() (bool, error) { return f.followed(ctx) })
	if err == nil {
		err = f.event(ctx, workload, all)
	}
	if err != nil {
		return nil, err
	}
	return w.runItems(ctx, f, workload+" "+policy, w.uses(f, workload, policy, seeds), false)
}

// event changes which of all Encoders are in the fleet. That of reassign is in the seeding.
func (f *roles) event(ctx context.Context, workload string, all []string) error {
	switch workload {
	case "scale-out":
		f.encoders = all
		return f.anotherGateway(ctx)
	case "replace":
		f.encoders = all[2:]
		return f.anotherGateway(ctx)
	case "encoder-loss":
		if err := f.kill(2); err != nil {
			return err
		}
		f.encoders = all[:2]
		return poll(ctx, "the gateway has noticed the loss", func() (bool, error) { return f.lost(ctx, 2) })
	}
	return nil
}

// followed says whether the gateway knows of as many embeddings as Encoders hold.
func (f *roles) followed(ctx context.Context) (bool, error) {
	held := 0.0
	for _, url := range f.encoders {
		b, err := get(ctx, url+"/metrics")
		if err != nil {
			return false, err
		}
		held += sumMetric(b, "afterimage_cache_objects")
	}
	b, err := get(ctx, f.gateway+"/metrics")
	return sumMetric(b, "afterimage_gateway_held_keys") == held, err
}

// runItems sends uses as requests of Images each.
func (w *Workloads) runItems(ctx context.Context, f *roles, name string, uses []use, seeding bool) (*Phase, error) {
	t := newRoutes(w.Seed, (len(uses)+w.Images-1)/w.Images, w.Images, w.Rate, w.Split, workloadPrefills).anyEncoder()
	p := pass{name: name, routes: t, maxTokens: w.OutputTokens, images: make([][]int, len(t.at))}
	if seeding {
		p.closed, p.maxTokens = 2, 1
	}
	forced := uses[0].encoder >= 0
	for i, u := range uses {
		at := i / w.Images
		p.images[at] = append(p.images[at], u.image)
		if forced {
			if p.routes.encoders == nil {
				p.routes.encoders = make([][]int, len(t.at))
			}
			p.routes.encoders[at] = append(p.routes.encoders[at], u.encoder)
		}
	}
	w.progress.step("%s: %d requests", name, len(t.at))
	return w.run(ctx, f, p)
}

// anotherGateway puts a new gateway before the Encoders that f names.
func (f *roles) anotherGateway(ctx context.Context) error {
	if err := f.startGateway(ctx); err != nil {
		return err
	}
	return poll(ctx, "all workers are in service", func() (bool, error) { return f.allUp(ctx) })
}

// lost says whether the gateway has taken Encoder i out of service.
func (f *roles) lost(ctx context.Context, i int) (bool, error) {
	var fleet struct{ Encoders []struct{ Up bool } }
	b, err := get(ctx, f.gateway+"/v1/fleet")
	if err == nil {
		err = json.Unmarshal(b, &fleet)
	}
	if err != nil || i >= len(fleet.Encoders) {
		return false, fmt.Errorf("bench: /v1/fleet has no Encoder %s: %w", strconv.Itoa(i), err)
	}
	return !fleet.Encoders[i].Up, nil
}
