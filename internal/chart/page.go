// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"html/template"
	"io"
)

// Page is a report.
type Page struct {
	Title    string
	Intro    []string // paragraphs
	Facts    [][2]string
	Sections []Section
}

// Section is a part of a page.
type Section struct {
	Title string
	Text  []string // paragraphs
	Table *Table
	Plots []Plot
}

// Table is rows of text under a head.
type Table struct {
	Head []string
	Rows [][]string
	// Text is how many columns, from the first, hold words; 0 is one. They stand to the left, numbers to the right.
	Text int
	// Marks names a class per row: "good", "bad" or "".
	Marks []string
}

// Mark returns the class of row i.
func (t *Table) Mark(i int) string {
	if i < len(t.Marks) {
		return t.Marks[i]
	}
	return ""
}

// Plot is drawn as SVG.
type Plot interface {
	// SVG returns the drawing with its caption.
	SVG() template.HTML
}

// Write writes the page.
func (p *Page) Write(w io.Writer) error { return page.Execute(w, p) }

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark; --ink: #1c2024; --dim: #667; --line: #d6dae0; --paper: #fff; --soft: #f4f6f8;
  --c0: #2f6fde; --c1: #d9622b; --c2: #2b9a66; --c3: #8a4fd0; --c4: #b8860b; --c5: #c2356e; --good: #1d7f4e; --bad: #c0342b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #9aa3ad; --line: #353b43; --paper: #14171a; --soft: #1d2125;
  --c0: #6aa2ff; --c1: #ff9561; --c2: #55c893; --c3: #b890f5; --c4: #e0b64a; --c5: #f07aa6; --good: #55c893; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .3rem } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; margin: .6rem 0 }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap } th:first-child, td:first-child, .words :is(th, td):nth-child(2) { text-align: left }
th { color: var(--dim); font-weight: 600 } tr.good td:last-child { color: var(--good) } tr.bad td:last-child { color: var(--bad); font-weight: 600 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; font-size: 13px; background: var(--soft); padding: .8rem 1rem; border-radius: 6px }
dt { color: var(--dim) } dd { margin: 0; overflow-wrap: anywhere }
figure { margin: 1rem 0 } figcaption { font-size: 13px; color: var(--dim); margin-top: .3rem } figcaption b { color: var(--ink); margin-right: .6rem } svg { width: 100%; height: auto; background: var(--soft); border-radius: 6px }
svg text { fill: var(--dim); font: 11px system-ui, sans-serif } svg .axis { stroke: var(--line) } svg .grid { stroke: var(--line); stroke-dasharray: 2 3 }
.c0{--c:var(--c0)} .c1{--c:var(--c1)} .c2{--c:var(--c2)} .c3{--c:var(--c3)} .c4{--c:var(--c4)} .c5{--c:var(--c5)}
.curve { fill: none; stroke: var(--c); stroke-width: 1.8 } .dot, .span { fill: var(--c) } .key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; background: var(--c); margin: 0 .3em 0 .9em }
</style></head><body>
<h1>{{.Title}}</h1>
{{range .Intro}}<p>{{.}}</p>
{{end}}{{if .Facts}}<dl>{{range .Facts}}<dt>{{index . 0}}</dt><dd>{{index . 1}}</dd>
{{end}}</dl>{{end}}
{{range .Sections}}<section><h2>{{.Title}}</h2>
{{range .Text}}<p>{{.}}</p>
{{end}}{{with .Table}}{{$t := .}}<div class="scroll"><table{{if gt .Text 1}} class="words"{{end}}><thead><tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr></thead><tbody>
{{range $i, $r := .Rows}}<tr class="{{$t.Mark $i}}">{{range $r}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>{{end}}
{{range .Plots}}{{.SVG}}
{{end}}</section>
{{end}}</body></html>
`))
