// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"errors"
	"slices"
)

// try refuses a grammar of which an answer could be read in too many ways at once. The error names the places in the
// schema.
func (w *writer) try(text string) error {
	defs, err := readGrammar(text)
	if err != nil {
		return err
	}
	m, err := compile(defs, w.opaque)
	if err != nil {
		return err
	}
	s, err := tryOut(m)
	switch {
	case s == nil:
		return nil
	case errors.Is(err, errManySteps):
		return fault(w.place(m, s.at(m)), "has branches that overlap in too many ways to be sure how many stay open at once; "+mend)
	}
	one, other := w.twins(m, s)
	if one == other {
		return fault(one, "an answer could be read in more than %d ways at once here; "+mend, maxReadings)
	}
	return fault(one, "takes the same values as %s, and nested ones multiply: an answer could be read in more than %d ways at once; "+mend,
		other, maxReadings)
}

const mend = "branches must differ in type, or in a required property with a const or enum that comes before what is nested"

// at is the place of the first reading.
func (s *situation) at(m *machine) int { return m.links[s.readings[0].stack].at }

// twins returns the places of two readings that came to differ before s, innermost first, and stayed.
func (w *writer) twins(m *machine, s *situation) (one, other string) {
	for x := s; x.from != nil; x = x.from {
		if x.opens == 0 {
			continue
		}
		first := map[int]reading{} // by entry
		for _, r := range x.from.readings {
			if _, a := m.top(r.stack); a.kind != x.opens {
				continue
			}
			if f, ok := first[r.entry]; ok {
				a, b := m.parting(f.stack, r.stack)
				return w.place(m, a), w.place(m, b)
			}
			first[r.entry] = r
		}
	}
	place := w.place(m, s.at(m))
	return place, place
}

// parting returns the lowest places in which two stacks differ.
func (m *machine) parting(a, b int) (int, int) {
	list := func(stack int) (out []int) {
		for ; stack != 0; stack = m.links[stack].below {
			out = append(out, m.links[stack].at)
		}
		slices.Reverse(out)
		return out
	}
	p, q := list(a), list(b)
	i := 0
	for i < min(len(p), len(q))-1 && p[i] == q[i] {
		i++
	}
	return p[i], q[i]
}

// place names the schema that an element was written for.
func (w *writer) place(m *machine, at int) string {
	name := m.defs[m.elements[at].rule].name
	for _, r := range w.rules {
		if r.name == name {
			return r.at
		}
	}
	return "a schema that says nothing"
}
