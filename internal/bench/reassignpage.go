// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"

	"afterimage/internal/chart"
	"afterimage/internal/load"
)

// Page returns the report as a page.
func (r *Reassignment) Page() *chart.Page {
	rep := r.Report()
	p := &chart.Page{
		Title: "Afterimage: reassignment",
		Intro: append([]string{
			"Images that one Encoder has encoded are asked of another. EL: each Encoder has a cache of its own. ES: they share a Store. M6: six monolithic servers. " +
				"ideal: ES once more, when every Encoder has what it is asked for. direct: P/Ds read the Store themselves; resident: they have kept everything.",
		}, rep.Note, rep.Summary()),
		Facts: append([][2]string{{"command", r.Command}, {"machine", r.Machine}, {"started", r.Started.Format("2006-01-02 15:04:05 MST")}}, r.Setup...),
	}
	p.Sections = append(p.Sections,
		chart.Section{Title: "In words", Text: r.sentences()},
		chart.Section{Title: "All figures", Table: rep.table()},
		chart.Section{Title: "Distributions", Plots: []chart.Plot{
			r.distribution("Time to first token", ttftOf), r.distribution("Fan-out span: until all images of a request are at P/D", spanOf),
			r.distribution("Time per output token", tpotOf),
		}})
	if plots := r.traffic(); len(plots) > 0 {
		p.Sections = append(p.Sections, chart.Section{Title: "Store traffic", Plots: plots})
	}
	var busy, timelines []chart.Plot
	for _, name := range phaseNames {
		if ph := r.Phases[name]; ph != nil {
			if t := ph.encoders(); t != nil {
				busy = append(busy, t)
			}
			timelines = append(timelines, ph.timeline())
		}
	}
	p.Sections = append(p.Sections, chart.Section{Title: "What Encoders did", Text: []string{"Each bar is an image in the engine of its Encoder, as the Encoder told its times."}, Plots: busy},
		chart.Section{Title: "Every request", Plots: timelines})
	return p
}

// sentences says in words what came out.
func (r *Reassignment) sentences() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	el, es := r.Phases["EL"], r.Phases["ES"]
	if el != nil && es != nil {
		say("Without a Store the Encoders encoded %.0f of %d images again; with it %.0f. That is %.1f s against %.1f s of encoder time.",
			el.Counters.Encodes, r.Images, es.Counters.Encodes, el.Counters.BusySeconds, es.Counters.BusySeconds)
		change := func(q float64) float64 { return 100 * (es.quantile(ttftOf, q)/el.quantile(ttftOf, q) - 1) }
		say("Time to first token changed by %.1f %% at p50, %.1f %% at p90 and %.1f %% at p99 (published: -32.3 %% and -46.2 %%).", change(0.5), change(0.9), change(0.99))
		say("The images of a request were at P/D after %.1f ms instead of %.1f ms at p50, %.1f instead of %.1f ms at p90.",
			es.quantile(spanOf, 0.5), el.quantile(spanOf, 0.5), es.quantile(spanOf, 0.9), el.quantile(spanOf, 0.9))
		say("Decoding was left alone: %.2f ms per token against %.2f ms.", es.quantile(tpotOf, 0.5), el.quantile(tpotOf, 0.5))
	}
	if ideal := r.Phases["ideal"]; ideal != nil && el != nil {
		say("A free fan-out would give %.1f %% at p50 and %.1f %% at p90: that is the ceiling.",
			100*(ideal.quantile(ttftOf, 0.5)/el.quantile(ttftOf, 0.5)-1), 100*(ideal.quantile(ttftOf, 0.9)/el.quantile(ttftOf, 0.9)-1))
	}
	if a, b := r.Phases["ES seeding"], r.Phases["EL seeding"]; a != nil && b != nil {
		say("While all images were new, where reuse does not pay, publishing them cost %+.2f %% of wall clock, and a request %+.1f ms of time to first token at p50.",
			100*(a.Wall/b.Wall-1), a.quantile(ttftOf, 0.5)-b.quantile(ttftOf, 0.5))
	}
	for _, name := range []string{"direct", "resident"} {
		if p := r.Phases[name]; p != nil {
			say("%s: images at P/D after %.1f ms at p50 and %.1f ms at p90, with %.0f encodes; time to first token %.0f ms and %.0f ms.",
				name, p.quantile(spanOf, 0.5), p.quantile(spanOf, 0.9), p.Counters.Encodes, p.quantile(ttftOf, 0.5), p.quantile(ttftOf, 0.9))
		}
	}
	if r.Fault != "" {
		say("The run is not complete: %s", r.Fault)
	}
	return out
}

// measured are the phases whose distributions are shown.
var measured = []string{"M6", "EL", "ES", "ideal", "direct", "resident"}

func (r *Reassignment) distribution(title string, of func(*load.Record) float64) *chart.Lines {
	l := &chart.Lines{Title: title, X: "ms", Y: "share of requests"}
	for _, name := range measured {
		p := r.Phases[name]
		if p == nil {
			continue
		}
		xs := p.times(of)
		Quantile(xs, 0) // sorts
		s := chart.Series{Name: name}
		for i, x := range xs {
			s.Points = append(s.Points, [2]float64{x, float64(i+1) / float64(len(xs))})
		}
		l.Series = append(l.Series, s)
	}
	return l
}

// traffic plots what went in and out of the Store.
func (r *Reassignment) traffic() []chart.Plot {
	in := &chart.Lines{Title: "Bytes in the Store", X: "s", Y: "MiB"}
	out := &chart.Lines{Title: "Bytes read from the Store", X: "s", Y: "MiB"}
	for _, name := range phaseNames {
		p := r.Phases[name]
		if p == nil || len(p.Traffic) == 0 {
			continue
		}
		var a, b [][2]float64
		for _, t := range p.Traffic {
			a = append(a, [2]float64{t[0], t[2] / mib})
			b = append(b, [2]float64{t[0], t[1] / mib})
		}
		in.Series = append(in.Series, chart.Series{Name: name, Points: a})
		out.Series = append(out.Series, chart.Series{Name: name, Points: b})
	}
	if len(in.Series) == 0 {
		return nil
	}
	return []chart.Plot{in, out}
}

// The stages of a request on its timeline.
const (
	stageLag     = "client"
	stageGateway = "gateway"
	stageFanOut  = "fan-out"
	stagePrefill = "prefill"
	stageDecode  = "decode"
)

// timeline draws each request by stage.
func (p *Phase) timeline() *chart.Timeline {
	t := &chart.Timeline{Title: p.Name, X: "s", Kinds: []string{stageGateway, stageFanOut, stagePrefill, stageDecode, stageLag}}
	for i := range p.Records {
		r := &p.Records[i]
		at := r.DueMS
		row := chart.Row{Label: fmt.Sprintf("request %d: first token after %.0f ms", r.Index, r.TTFTMS)}
		to := func(kind string, until float64) {
			if until > at {
				row.Spans = append(row.Spans, chart.Span{From: at / 1000, To: until / 1000, Kind: kind})
				at = until
			}
		}
		to(stageLag, r.DueMS+r.LagMS)
		sent := at
		if r.Trace != nil {
			for _, s := range r.Trace.Stages {
				switch s.Name {
				case "media":
					to(stageGateway, sent+s.MS)
				case "prepare", "delivered":
					to(stageFanOut, sent+s.MS)
				}
			}
		}
		to(stagePrefill, r.DueMS+r.TTFTMS)
		to(stageDecode, r.DueMS+r.EndMS)
		t.Rows = append(t.Rows, row)
	}
	return t
}

// encoders draws what each Encoder's engine did; nil if none did anything.
func (p *Phase) encoders() *chart.Timeline {
	t := &chart.Timeline{Title: p.Name, X: "s", Kinds: []string{"encode"}}
	rows := map[string]int{}
	for i := range p.Records {
		r := &p.Records[i]
		if r.Trace == nil {
			continue
		}
		prepared := 0.0
		for _, s := range r.Trace.Stages {
			if s.Name == "prepare" {
				prepared = s.MS
			}
		}
		for _, it := range r.Trace.Items {
			if it.Source != "encoded" {
				continue
			}
			k, ok := rows[it.Encoder]
			if !ok {
				k = len(t.Rows)
				rows[it.Encoder] = k
				t.Rows = append(t.Rows, chart.Row{Label: it.Encoder})
			}
			from := r.DueMS + r.LagMS + prepared
			t.Rows[k].Spans = append(t.Rows[k].Spans, chart.Span{From: (from + it.QueueMS) / 1000, To: (from + it.MS - it.TransferMS) / 1000, Kind: "encode"})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}
