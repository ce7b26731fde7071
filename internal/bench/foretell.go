// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/engine/device"
	"afterimage/internal/sim"
)

// Foretell holds what package sim says of a traffic against a fleet that is put under it: modelled devices, and
// everything else real. Both take the same trace.
type Foretell struct {
	Reassign            // requests, images, rate, scale, device
	Policies   []string // of AllPolicies
	Popularity sim.Popularity
	CacheBytes int64 // of each Encoder
	StoreBytes int64
}

// DefaultForetell returns a traffic in which images come again, some of them after their Encoder has forgotten them.
func DefaultForetell() Foretell {
	r := DefaultReassign()
	r.Profile = device.DefaultProfile()
	r.Profile.Prefill, r.Profile.Answer, r.Profile.Slots = 100*time.Microsecond, 0, 32
	r.Requests, r.Rate = 160, 4
	return Foretell{
		Reassign: r, Policies: AllPolicies(), CacheBytes: 96 * mib, StoreBytes: 1 << 30,
		Popularity: sim.Popularity{Kind: sim.Zipf, S: 0.9, Distinct: 300},
	}
}

// Foretold is what one policy came to and what sim says of it, times as at scale 1.
type Foretold struct {
	Policy   string
	Measured *Phase
	Outcome  sim.Outcome
}

// Run measures all policies. On an error it returns those that were measured until then.
func (w Foretell) Run(ctx context.Context) ([]Foretold, error) {
	if err := w.validate(); err != nil {
		return nil, err
	}
	for _, name := range w.Policies {
		if !slices.Contains(AllPolicies(), name) {
			return nil, fmt.Errorf("bench: unknown policy %q; there are %q", name, AllPolicies())
		}
	}
	w.progress = newProgress(w.Progress)
	defer w.progress.end()
	w.Profile.Scale = w.Scale
	w.model, w.bytesPerToken = modelledName, 1
	t, err := w.trace()
	if err != nil {
		return nil, err
	}
	if w.pictures, err = dataURLs(t.Images, w.Seed, func(int) int { return pictureSide }); err != nil {
		return nil, err
	}
	var out []Foretold
	for _, p := range sim.Policies(w.StoreBytes) {
		if !slices.Contains(w.Policies, p.Name) {
			continue
		}
		f, err := w.policy(ctx, t, p)
		if err != nil {
			return out, err
		}
		out = append(out, f)
	}
	return out, nil
}

// trace makes the traffic up.
func (w *Foretell) trace() (*sim.Trace, error) {
	sizes := sim.DefaultSizes()
	sizes.ItemBytes, sizes.TextTokens, sizes.OutputTokens = w.Profile.Rows*sizes.RowBytes, int32(w.TextTokens), int32(w.OutputTokens)
	return sim.Generate(sim.Synthetic{
		Requests: w.Requests, Rate: w.Rate, Arrivals: sim.Poisson, Images: sim.Mix{{Value: w.Images, Weight: 1}},
		Popularity: w.Popularity, Sizes: sizes, Seed: w.Seed,
	})
}

// policy measures one policy in a fleet of its own, and has sim foretell it, with images at home where they are in
// that fleet.
func (w *Foretell) policy(ctx context.Context, t *sim.Trace, p sim.Policy) (Foretold, error) {
	out := Foretold{Policy: p.Name}
	// An Encoder that the client names takes part in no flight of other requests.
	p.SingleFlight = p.SingleFlight && p.Routing == sim.Affinity
	m := sim.DefaultModel()
	m.Encoders, m.Prefills = reassignEncoders, workloadPrefills
	m.CacheBytes = w.CacheBytes
	m.Encode, m.Host, m.Prefill, m.Step, m.Whole = w.Profile.Encode, w.Profile.Host, w.Profile.Prefill, w.Profile.Decode, w.Profile.Whole
	spec := rolesSpec{
		encoders: m.Encoders, prefills: m.Prefills, store: p.StoreBytes != 0, delivery: "p2p", storeBytes: w.StoreBytes,
		encoderCache: w.CacheBytes, encoderArena: w.CacheBytes + 160*mib, prefillArena: 256 * mib,
	}
	err := w.fleet(ctx, p.Name, spec, func(f *roles) (err error) {
		if p.Owners, err = w.owners(ctx, f); err == nil {
			out.Measured, err = w.run(ctx, f, w.pass(t, p))
		}
		return err
	})
	if err == nil {
		out.Outcome, err = sim.Run(ctx, t, m, p)
	}
	return out, err
}

// pass turns the trace into requests. Where the policy spreads images over Encoders, each goes where sim sends it; else
// routing is left to the gateway, as P/Ds are always.
func (w *Foretell) pass(t *sim.Trace, p sim.Policy) pass {
	uses := 0
	out := pass{name: p.Name, maxTokens: w.OutputTokens}
	for i, q := range t.Requests {
		out.routes.at = append(out.routes.at, q.At)
		var images, encoders []int
		for _, u := range t.Uses(i) {
			images, encoders = append(images, int(u.Image)), append(encoders, sim.SpreadAt(uses, reassignEncoders))
			uses++
		}
		out.images = append(out.images, images)
		if p.Routing == sim.Spread {
			out.routes.encoders = append(out.routes.encoders, encoders)
		}
	}
	return out
}

// foretoldWithin is how far sim may be off, as a share.
const foretoldWithin = 0.10

// ForetellReport turns what was measured and foretold into rows. Hits and times of sim must be within 10 % of the measured ones.
func ForetellReport(all []Foretold, scale float64, fault error) Report {
	rep := Report{Name: "simulate", Note: fmt.Sprintf("%s; modelled device; scale %g, values are those of scale 1; value: what the model says, peer: what was measured", Machine(), scale)}
	for _, f := range all {
		o, m := &f.Outcome, f.Measured
		within := func(metric string, value, measured float64) Row {
			return Within(f.Policy, metric, value, "measured", measured, foretoldWithin)
		}
		rep.Rows = append(rep.Rows,
			within("encoded, images", float64(o.Encoded), m.Counters.Encodes),
			within("reused, images", float64(o.Items-o.Encoded), float64(o.Items)-m.Counters.Encodes),
			within("TTFT p50, ms", 1000*o.P50, m.quantile(ttftOf, 0.5)),
			within("TTFT p90, ms", 1000*o.P90, m.quantile(ttftOf, 0.9)),
			Against(f.Policy, "TTFT p99, ms", 1000*o.P99, "measured", m.quantile(ttftOf, 0.99), 0),
			Against(f.Policy, "span p50, ms", 1000*o.SpanP50, "measured", m.quantile(spanOf, 0.5), 0),
			Against(f.Policy, "span p90, ms", 1000*o.SpanP90, "measured", m.quantile(spanOf, 0.9), 0))
		if n := m.sources()[control.SourceStore]; n > 0 {
			rep.Rows = append(rep.Rows, Against(f.Policy, "from the Store, images", float64(o.Store), "measured", float64(n), 0))
		}
	}
	if fault != nil {
		rep.Rows = append(rep.Rows, Missing("the rest", "all", fault.Error()))
	}
	return rep
}
