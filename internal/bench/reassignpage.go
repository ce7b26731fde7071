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
		chart.Section{Title: "In one table", Text: []string{"p50 / p90 / p99 of the requests of a configuration, times in ms; of others' figures p50 / p90."}, Table: r.glance()},
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
		chart.Section{Title: "Every request", Plots: timelines}, chart.Section{Title: "All figures", Table: rep.table()})
	return p
}

// glance returns a row per configuration.
func (r *Reassignment) glance() *chart.Table {
	theirs, whose := published, "published"
	if r.Real {
		theirs, whose = onCPU, "vLLM on two cores"
	}
	t := &chart.Table{Head: []string{"", "TTFT", whose, "fan-out span", whose, "time per token", whose, "encoded", "encoder time, s"}}
	for _, name := range measured {
		p := r.Phases[name]
		if p == nil {
			continue
		}
		row := []string{name}
		for _, c := range []struct {
			name, format string
			of           func(*load.Record) float64
		}{{"TTFT", "%.0f", ttftOf}, {"span", "%.1f", spanOf}, {"TPOT", "%.2f", tpotOf}} {
			pub := ""
			if v, ok := theirs[name][c.name+" p50"]; ok {
				pub = fmt.Sprintf(c.format+" / "+c.format, v, theirs[name][c.name+" p90"])
			}
			row = append(row, p.three(c.format, c.of), pub)
		}
		t.Rows = append(t.Rows, append(row, fmt.Sprintf("%.0f of %d", p.Counters.Encodes, r.Images), fmt.Sprintf("%.1f", p.Counters.BusySeconds)))
	}
	return t
}

// three returns p50, p90 and p99 of a figure.
func (p *Phase) three(format string, of func(*load.Record) float64) string {
	xs := p.times(of)
	if len(xs) == 0 {
		return ""
	}
	f := func(q float64) string { return fmt.Sprintf(format, Quantile(xs, q)) }
	return f(0.5) + " / " + f(0.9) + " / " + f(0.99)
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
