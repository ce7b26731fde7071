// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"afterimage/internal/chart"
	"afterimage/internal/load"
)

// measure is one figure of a load.
type measure struct {
	name   string
	metric string
	value  float64
	// worse says whether more is worse: +1, or less is: -1, or neither: 0.
	worse int
}

// measures lists the figures of a result.
func (r *Result) measures() []measure {
	s := &r.Summary
	var out []measure
	for _, h := range []struct {
		name string
		h    *load.Histogram
	}{{"TTFT", &s.TTFT}, {"TPOT", &s.TPOT}, {"ITL", &s.ITL}, {"whole answer", &s.End}} {
		if h.h.N == 0 {
			continue
		}
		for _, q := range []float64{0.5, 0.9, 0.99} {
			out = append(out, measure{h.name, fmt.Sprintf("p%g ms", q*100), h.h.Quantile(q), +1})
		}
	}
	if r.SpanP90MS > 0 {
		out = append(out, measure{"fan-out span", "p50 ms", r.SpanP50MS, +1}, measure{"fan-out span", "p90 ms", r.SpanP90MS, +1})
	}
	out = append(out,
		measure{"dispatch lag", "p90 ms", s.Lag.Quantile(0.9), 0},
		measure{"requests", "per second", s.PerSecond(s.OK), -1},
		measure{"tokens", "per second", s.PerSecond(s.Tokens), -1},
		measure{"goodput", "requests per second", s.PerSecond(s.Good), -1},
		measure{"failed", "requests", float64(s.Failed), 0})
	for _, source := range slices.Sorted(maps.Keys(r.Sources)) {
		out = append(out, measure{"images", source, float64(r.Sources[source]), 0})
	}
	return out
}

// Report returns the figures as rows that only inform.
func (r *Result) Report() Report {
	rep := Report{Name: "serve", Note: r.note()}
	for _, m := range r.measures() {
		rep.Rows = append(rep.Rows, Absolute(m.name, m.metric, m.value, 0))
	}
	return rep
}

func (r *Result) note() string {
	note := fmt.Sprintf("%s; %s; %s; %d of %d answered in %.1f s; times count from when a request was due", r.Machine, label(r.Model), r.Load, r.Summary.OK, r.Summary.Sent, r.Summary.Seconds)
	if r.Interrupted {
		note += "; INTERRUPTED: only what was measured until then"
	}
	return note
}

// label is the model's name for people.
func label(model string) string {
	if strings.Contains(model, modelledName) {
		return model + " (modelled device)"
	}
	return model
}

// ReadResult reads a result file.
func ReadResult(name string) (Result, error) {
	var r Result
	b, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil && r.Bench != "serve" {
		err = fmt.Errorf("it is of bench %q, not of bench serve", r.Bench)
	}
	if err != nil {
		return r, fmt.Errorf("bench: %s is no result of bench serve: %w", name, err)
	}
	return r, nil
}

// Write writes the result file.
func (r *Result) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

// Compare holds a result against an older one: whatever is worse by more than a share of tolerance is a miss.
func Compare(older, newer *Result, tolerance float64) Report {
	rep := Report{Name: "compare", Note: "new: " + newer.note() + "\nold: " + older.note()}
	before := map[string]float64{}
	for _, m := range older.measures() {
		before[m.name+m.metric] = m.value
	}
	for _, m := range newer.measures() {
		old, ok := before[m.name+m.metric]
		switch {
		case !ok:
			rep.Rows = append(rep.Rows, Absolute(m.name, m.metric, m.value, 0))
		case m.worse > 0 && old > 0:
			rep.Rows = append(rep.Rows, Against(m.name, m.metric, m.value, "old", old, 1+tolerance))
		case m.worse < 0 && m.value > 0 && old > 0: // a rate: what a request takes is the inverse
			rep.Rows = append(rep.Rows, Against(m.name, "s, inverse of "+m.metric, 1/m.value, "old", 1/old, 1+tolerance))
		default:
			rep.Rows = append(rep.Rows, Against(m.name, m.metric, m.value, "old", old, 0))
		}
	}
	return rep
}

// Page returns a page about results, the first being the one that the figures are of.
func Page(title string, rep Report, results ...*Result) *chart.Page {
	p := &chart.Page{Title: title, Intro: strings.Split(rep.Note, "\n")}
	for _, r := range results {
		p.Facts = append(p.Facts, [2]string{"command", r.Command}, [2]string{"started", r.Started.Format("2006-01-02 15:04:05 MST")})
	}
	p.Sections = append(p.Sections, chart.Section{Title: "Figures", Table: rep.table()}, chart.Section{Title: "Distributions", Plots: curves(results)})
	over := &chart.Lines{Title: "Time to first token, by when the request was due", X: "s", Y: "ms", Dots: true}
	for i, r := range results {
		s := chart.Series{Name: resultName(i, len(results))}
		for _, rec := range r.Records {
			if rec.TTFTMS > 0 {
				s.Points = append(s.Points, [2]float64{rec.DueMS / 1000, rec.TTFTMS})
			}
		}
		over.Series = append(over.Series, s)
	}
	p.Sections = append(p.Sections, chart.Section{Title: "Over time", Plots: []chart.Plot{over}})
	return p
}

func resultName(i, n int) string {
	if n == 1 {
		return "this run"
	}
	return []string{"new", "old"}[min(i, 1)]
}

// curves plots the distributions of results over each other.
func curves(results []*Result) []chart.Plot {
	var plots []chart.Plot
	for _, what := range []struct {
		title string
		of    func(*load.Summary) *load.Histogram
	}{
		{"Time to first token", func(s *load.Summary) *load.Histogram { return &s.TTFT }},
		{"Time per output token", func(s *load.Summary) *load.Histogram { return &s.TPOT }},
		{"Time between pieces of text", func(s *load.Summary) *load.Histogram { return &s.ITL }},
		{"Whole answer", func(s *load.Summary) *load.Histogram { return &s.End }},
	} {
		l := &chart.Lines{Title: what.title, X: "ms", Y: "share of requests"}
		for i, r := range results {
			l.Series = append(l.Series, chart.Series{Name: resultName(i, len(results)), Points: what.of(&r.Summary).Curve()})
		}
		plots = append(plots, l)
	}
	return plots
}

// table returns the rows of a report for a page.
func (r Report) table() *chart.Table {
	t := &chart.Table{Head: []string{"case", "metric", "value", "peer", "peer value", "ratio", "target", "ok"}, Text: 2}
	for _, row := range r.Rows {
		t.Rows = append(t.Rows, strings.Split(row.cells(), "\t"))
		mark := ""
		if row.OK != nil {
			mark = map[bool]string{true: "good", false: "bad"}[*row.OK]
		}
		t.Marks = append(t.Marks, mark)
	}
	return t
}

// TablePage returns a page that shows the rows of a report.
func TablePage(title string, rep Report) *chart.Page {
	return &chart.Page{Title: title, Intro: append(strings.Split(rep.Note, "\n"), rep.Summary()), Sections: []chart.Section{{Title: "Figures", Table: rep.table()}}}
}
