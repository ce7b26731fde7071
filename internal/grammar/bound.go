// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// The library follows every way to read what an answer has so far, each with a stack of its own. Where two branches
// of a schema take the same value and hold each other, the ways double with every level that a model opens, until a
// call does not return. So every schema is tried before it is used: on a machine of tokens, all that an answer may begin
// with is gone through, and the ways are counted.
const (
	// maxReadings bounds the ways to read an answer at once. For each of them, the library takes some 7 ms to tell which
	// of 49,000 tokens may come next.
	maxReadings = 128
	// maxSteps bounds the trial, to some 0.3 s. The examples of the tests take up to 100,000.
	maxSteps = 300_000
)

// reading is a way to read what came since the innermost open bracket: a stack that ends at that bracket, and which of
// the ways to begin there it is of.
type reading struct{ stack, entry int }

// situation is all readings of one beginning of an answer. What is below the innermost open bracket does not change
// while that is open, so it is counted and not kept.
type situation struct {
	readings []reading
	weights  []int // for each entry, the ways to read all before it
	from     *situation
	opens    byte // the bracket that led here from there, else 0
}

// total is how many ways there are.
func (s *situation) total() (n int) {
	for _, r := range s.readings {
		n += s.weights[r.entry]
	}
	return n
}

func (s *situation) key() string {
	var b []byte
	for _, r := range s.readings {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.stack)+1), uint64(r.entry))
	}
	b = append(b, 0)
	for _, w := range s.weights {
		b = binary.AppendUvarint(b, uint64(w))
	}
	return string(b)
}

// trial goes through what an answer may begin with. A value in brackets is passed over as one, for all readings that
// take such a bracket, and entered as another beginning; so what is counted is never too little.
type trial struct {
	m    *machine
	seen map[string]bool
	todo []*situation
}

// tryOut returns the first situation with too many readings, or nil. It fails when there is too much to go through.
func tryOut(m *machine) (*situation, error) {
	t := &trial{m: m, seen: map[string]bool{}}
	first := &situation{weights: []int{1}}
	for _, start := range m.starts[0] {
		t.enter(first, m.push(start, 0), 0)
	}
	t.add(first)
	for len(t.todo) > 0 {
		s := t.todo[0]
		t.todo = t.todo[1:]
		if s.total() > maxReadings {
			return s, nil
		}
		if m.steps > maxSteps {
			return s, errManySteps
		}
		t.follow(s)
	}
	return nil, nil
}

// enter adds the readings that a stack stands for.
func (t *trial) enter(s *situation, stack, entry int) {
	t.m.expand(stack, func(stack int) {
		if stack != 0 { // else the answer is complete
			s.readings = append(s.readings, reading{stack, entry})
		}
	})
}

// add notes a situation to go on from, unless it is known.
func (t *trial) add(s *situation) {
	slices.SortFunc(s.readings, func(a, b reading) int {
		if a.entry != b.entry {
			return a.entry - b.entry
		}
		return a.stack - b.stack
	})
	s.readings = slices.Compact(s.readings)
	if k := s.key(); len(s.readings) > 0 && !t.seen[k] {
		t.seen[k] = true
		t.todo = append(t.todo, s)
	}
}

// follow adds what may come after s.
func (t *trial) follow(s *situation) {
	t.m.steps += len(s.readings)
	literals := map[string][]reading{}
	others := map[byte][]reading{}
	for _, r := range s.readings {
		_, a := t.m.top(r.stack)
		if a.kind != 'l' {
			others[a.kind] = append(others[a.kind], r)
			continue
		}
		for text := range a.texts {
			literals[text] = append(literals[text], r)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(literals)) {
		t.read(s, slices.Concat(literals[text], t.besides(text, others)))
	}
	t.read(s, slices.Concat(others['s'], others['k']))
	for _, kind := range []byte{'n', ':', ','} {
		t.read(s, others[kind])
	}
	for _, open := range []byte{'{', '['} {
		t.pass(s, others[open])
		t.open(s, others[open], open)
	}
}

// besides returns the readings that take a literal without naming it.
func (t *trial) besides(text string, others map[byte][]reading) []reading {
	if text[0] != '"' {
		if text[0] == '-' || text[0] >= '0' && text[0] <= '9' {
			return others['n']
		}
		return nil
	}
	out := slices.Clone(others['s'])
	for _, r := range others['k'] {
		if _, a := t.m.top(r.stack); !a.texts[text] {
			out = append(out, r)
		}
	}
	return out
}

// read goes on behind one token, which those readings take.
func (t *trial) read(s *situation, takers []reading) {
	t.step(s, takers, func(at int) int { return at + 1 })
}

// pass goes on behind a value in brackets, of which those readings take the first.
func (t *trial) pass(s *situation, takers []reading) {
	t.step(s, takers, func(at int) int {
		for depth := 0; ; at++ {
			if e := t.m.elements[at]; e.kind == 'a' {
				switch t.m.atoms[e.arg].kind {
				case '{', '[':
					depth++
				case '}', ']':
					depth--
				}
			}
			if depth == 0 {
				return at + 1
			}
		}
	})
}

func (t *trial) step(s *situation, takers []reading, after func(at int) int) {
	next := &situation{weights: s.weights, from: s}
	t.m.steps += len(takers)
	for _, r := range takers {
		n := t.m.links[r.stack]
		t.enter(next, t.m.push(after(n.at), n.below), r.entry)
	}
	t.add(next)
}

// open goes on inside of a value in brackets. Readings that enter it at the same place differ in what is below it only.
func (t *trial) open(s *situation, takers []reading, bracket byte) {
	weights := map[int]int{}
	for _, r := range takers {
		weights[t.m.links[r.stack].at] += s.weights[r.entry]
	}
	next := &situation{from: s, opens: bracket}
	for entry, at := range slices.Sorted(maps.Keys(weights)) {
		next.weights = append(next.weights, min(weights[at], maxReadings+1))
		t.enter(next, t.m.push(at+1, 0), entry)
	}
	t.add(next)
}

var errManySteps = fmt.Errorf("grammar: more than %d steps", maxSteps)
