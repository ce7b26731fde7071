// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"slices"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// Segment is a run of text, or the place of an embedding.
type Segment struct {
	Tokens []int32
	Item   int // index of the embedding; -1 for text
}

// unit is what a prompt consists of: a token, or the rows of one part of an embedding.
type unit struct {
	tok  int32
	rows *rowUnit
}

// rowUnit is a row part. Two are the same when their embeddings have the same name.
type rowUnit struct {
	name  string
	index int // of the part in its embedding
	part  embedding.Part
	data  []byte // the owner's; nil once it was let go of
}

func (u unit) same(v unit) bool {
	if u.rows == nil || v.rows == nil {
		return u.rows == v.rows && u.tok == v.tok
	}
	return u.rows.name == v.rows.name && u.rows.index == v.rows.index
}

// extent returns the cells and positions that u takes.
func (u unit) extent() (cells, positions int) {
	if u.rows == nil {
		return 1, 1
	}
	return u.rows.part.Rows, u.rows.part.Positions
}

// prompt is a prompt as far as its units are known: up to the first embedding that is not there.
type prompt struct {
	segments []Segment
	names    []string // of embeddings, by item
	items    []*item  // nil where not there yet

	units []unit
	next  int // segment that comes after units
}

// item is an embedding that was delivered.
type item struct {
	parts []unit
	end   int   // index behind its last unit in the prompt
	free  bool  // its rows were let go of
	err   error // why it will never come
}

// newItem divides an embedding into units.
func newItem(name string, layout embedding.Layout, data []byte) (*item, error) {
	n := layout.Rows()
	if n < 1 || len(data) == 0 || len(data)%n != 0 {
		return nil, fmt.Errorf("%w: %d bytes for %d rows", engine.ErrBadRows, len(data), n)
	}
	width, it := len(data)/n, &item{}
	for i, p := range layout.Parts {
		for _, tok := range p.Tokens {
			it.parts = append(it.parts, unit{tok: tok})
		}
		if p.Rows > 0 {
			size := p.Rows * width
			it.parts = append(it.parts, unit{rows: &rowUnit{name: name, index: i, part: p, data: data[:size]}})
			data = data[size:]
		}
	}
	return it, nil
}

// whole says that all units are known.
func (p *prompt) whole() bool { return p.next == len(p.segments) }

// expand adds the units that are known.
func (p *prompt) expand() {
	for ; !p.whole(); p.next++ {
		seg := p.segments[p.next]
		if seg.Item < 0 {
			for _, tok := range seg.Tokens {
				p.units = append(p.units, unit{tok: tok})
			}
			continue
		}
		it := p.items[seg.Item]
		if it == nil || it.err != nil {
			return
		}
		p.units = append(p.units, it.parts...)
		it.end = len(p.units)
	}
}

// passed says that no unit of item i is unknown.
func (p *prompt) passed(i int) bool {
	return !slices.ContainsFunc(p.segments[p.next:], func(s Segment) bool { return s.Item == i })
}

// run returns the bounds of the run of text that index i lies in or ends, and whether it ends at to.
func (p *prompt) run(i int) (from, to int, complete bool) {
	from, to = i, i
	for from > 0 && p.units[from-1].rows == nil {
		from--
	}
	for to < len(p.units) && p.units[to].rows == nil {
		to++
	}
	return from, to, to < len(p.units) || p.whole()
}

// record is what a sequence holds: the units that a request computed in it.
type record struct {
	scope string // of that request
	units []unit
	cells int
	used  int // step of its last use
}

// common returns how many of units, which a sequence holds, p can take over.
func (p *prompt) common(units []unit, block int) int {
	m := 0
	for m < min(len(p.units), len(units)) && p.units[m].same(units[m]) {
		m++
	}
	from, to, complete := p.run(m)
	return keep(block, m, m-from, to-m, complete, p.whole() && to == len(p.units))
}

// measure returns the cells and positions of units.
func measure(units []unit) (cells, positions int) {
	for _, u := range units {
		c, p := u.extent()
		cells += c
		positions += p
	}
	return cells, positions
}
