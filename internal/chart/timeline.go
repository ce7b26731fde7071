// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// Timeline draws spans of time, a row each.
type Timeline struct {
	Title string
	X     string   // what the axis shows, with its unit
	Kinds []string // names of the colours, in their order
	Rows  []Row
}

// Row is one line of a timeline.
type Row struct {
	Label string // shown when the pointer rests on it
	Spans []Span
}

// Span is a stretch of a row.
type Span struct {
	From, To float64
	Kind     string // one of Kinds
}

// rowHeight is the room of a row, in SVG units.
const rowHeight = 7.0

// SVG implements Plot.
func (t *Timeline) SVG() template.HTML {
	end := 1e-9
	for _, r := range t.Rows {
		for _, s := range r.Spans {
			end = max(end, s.To)
		}
	}
	h := top + bottom + rowHeight*float64(len(t.Rows))
	x := scale{0, end, left, width - left - right}
	var b strings.Builder
	fmt.Fprintf(&b, `<figure><svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, h, esc(t.Title))
	axes(&b, x, scale{}, h, t.X, "")
	for i, r := range t.Rows {
		y := top + rowHeight*float64(i)
		fmt.Fprintf(&b, `<g><title>%s</title>`, esc(r.Label))
		for _, s := range r.Spans {
			fmt.Fprintf(&b, `<rect class="span c%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, max(slices.Index(t.Kinds, s.Kind), 0)%6,
				x.of(s.From), y+1, max(x.of(s.To)-x.of(s.From), 0.3), rowHeight-2)
		}
		b.WriteString(`</g>`)
	}
	b.WriteString(`</svg>`)
	caption(&b, t.Title, t.Kinds)
	return template.HTML(b.String())
}
