// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Lines plots series over a common axis.
type Lines struct {
	Title  string
	X, Y   string // what the axes show, with units
	Series []Series
	Dots   bool // draw points instead of a line
}

// Series is one line of a plot, its points in order of x.
type Series struct {
	Name   string
	Points [][2]float64
}

// The size of a plot and its margins, in SVG units.
const (
	width, height = 900.0, 300.0
	left, right   = 60.0, 15.0
	top, bottom   = 15.0, 40.0
)

// scale maps a range of values to SVG units.
type scale struct{ from, to, at, length float64 }

func (s scale) of(v float64) float64 { return s.at + (v-s.from)/(s.to-s.from)*s.length }

// ticks returns about n round values within the range.
func (s scale) ticks(n int) []float64 {
	step := math.Pow(10, math.Floor(math.Log10((s.to-s.from)/float64(n))))
	for _, m := range []float64{1, 2, 5, 10} {
		if (s.to-s.from)/(step*m) <= float64(n) {
			step *= m
			break
		}
	}
	var out []float64
	for k := math.Ceil(s.from / step); k*step <= s.to*(1+1e-9); k++ {
		out = append(out, k*step)
	}
	return out
}

// bounds returns the range of coordinate i over all series, from 0 on, and never empty.
func (l *Lines) bounds(i int) (from, to float64) {
	for _, s := range l.Series {
		for _, p := range s.Points {
			if !math.IsNaN(p[i]) && !math.IsInf(p[i], 0) {
				from, to = min(from, p[i]), max(to, p[i])
			}
		}
	}
	if to <= from {
		to = from + 1
	}
	return from, to
}

// SVG implements Plot.
func (l *Lines) SVG() template.HTML {
	fromX, toX := l.bounds(0)
	fromY, toY := l.bounds(1)
	x := scale{fromX, toX, left, width - left - right}
	y := scale{fromY, toY, height - bottom, -(height - top - bottom)}
	var b strings.Builder
	fmt.Fprintf(&b, `<figure><svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, esc(l.Title))
	axes(&b, x, y, height, l.X, l.Y)
	for i, s := range l.Series {
		fmt.Fprintf(&b, `<g class="c%d">`, i%6)
		l.series(&b, s, x, y)
		b.WriteString(`</g>`)
	}
	names := make([]string, len(l.Series))
	for i, s := range l.Series {
		names[i] = s.Name
	}
	b.WriteString(`</svg>`)
	caption(&b, l.Title, names)
	return template.HTML(b.String())
}

func (l *Lines) series(b *strings.Builder, s Series, x, y scale) {
	if l.Dots {
		for _, p := range s.Points {
			fmt.Fprintf(b, `<circle class="dot" cx="%.1f" cy="%.1f" r="2.4"/>`, x.of(p[0]), y.of(p[1]))
		}
		return
	}
	b.WriteString(`<polyline class="curve" points="`)
	for _, p := range s.Points {
		fmt.Fprintf(b, "%.1f,%.1f ", x.of(p[0]), y.of(p[1]))
	}
	b.WriteString(`"/>`)
}

// axes draws the frame, the grid and what the axes show.
func axes(b *strings.Builder, x, y scale, h float64, nameX, nameY string) {
	base := h - bottom
	for _, v := range x.ticks(8) {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			x.of(v), x.of(v), top, base, x.of(v), base+14, number(v))
	}
	if nameY != "" {
		for _, v := range y.ticks(5) {
			fmt.Fprintf(b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`,
				left, width-right, y.of(v), y.of(v), left-5, y.of(v)+4, number(v))
		}
		fmt.Fprintf(b, `<text x="12" y="%g" transform="rotate(-90 12 %g)" text-anchor="middle">%s</text>`, h/2, h/2, esc(nameY))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="middle">%s</text>`,
		left, width-right, base, base, width/2, h-6, esc(nameX))
}

// caption ends a figure with its title and the key of its colours.
func caption(b *strings.Builder, title string, names []string) {
	fmt.Fprintf(b, `<figcaption><b>%s</b>`, esc(title))
	for i, n := range names {
		fmt.Fprintf(b, `<span class="key c%d"></span>%s`, i%6, esc(n))
	}
	b.WriteString(`</figcaption></figure>`)
}

// number writes a value of an axis.
func number(v float64) string {
	if math.Abs(v) < 1e-12 {
		return "0"
	}
	return fmt.Sprintf("%.4g", v)
}

func esc(s string) string { return template.HTMLEscapeString(s) }
