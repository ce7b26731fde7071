// SPDX-License-Identifier: Apache-2.0

package grammar

import "fmt"

// atom is what a machine reads at once.
type atom struct {
	// kind is one of {}[]:, for these characters, 'l' for a literal of JSON that is among texts, 's' for any string, 'k' for
	// any string but those, 'n' for any number. A machine of characters has 'c' alone.
	kind  byte
	texts map[string]bool // as they stand in JSON
	set   charset         // of 'c'
}

// element is one place of a rule: an atom, another rule, or the end of an alternative.
type element struct {
	kind byte // 'a', 'r', 0 for the end
	arg  int  // of atoms or of starts
	rule int  // index of the definition that it stands in
}

// machine follows a grammar as the library does: by all stacks of places that an answer may have come to, each of
// which ends at an atom.
type machine struct {
	elements []element
	atoms    []atom
	starts   [][]int // the first element of each alternative, by rule
	defs     []definition

	links []link // of stacks; the first is the empty one
	ids   map[link]int
	steps int // places looked at
}

// link is a stack: a place, and the number of the stack below.
type link struct{ at, below int }

func newMachine(defs []definition) *machine {
	return &machine{defs: defs, links: make([]link, 1), ids: map[link]int{}}
}

// push returns the stack below with a place on it, which is left out at the end of an alternative.
func (m *machine) push(at, below int) int {
	if m.elements[at].kind == 0 {
		return below
	}
	n := link{at, below}
	id, ok := m.ids[n]
	if !ok {
		id = len(m.links)
		m.links = append(m.links, n)
		m.ids[n] = id
	}
	return id
}

// top returns the atom at which a stack ends.
func (m *machine) top(stack int) (at int, a *atom) {
	at = m.links[stack].at
	return at, &m.atoms[m.elements[at].arg]
}

// expand calls yield for every stack, ending at an atom or empty, that stack stands for; for some more than once.
func (m *machine) expand(stack int, yield func(stack int)) {
	seen := map[int]bool{}
	for todo := []int{stack}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[s] {
			continue
		}
		seen[s] = true
		m.steps++
		n := m.links[s]
		if s == 0 || m.elements[n.at].kind == 'a' {
			yield(s)
			continue
		}
		rest := m.push(n.at+1, n.below)
		for _, start := range m.starts[m.elements[n.at].arg] {
			todo = append(todo, m.push(start, rest))
		}
	}
}

// compiler turns definitions into the elements of a machine, as the library does.
type compiler struct {
	m     *machine
	rules map[string]int
	now   int // the definition at hand
	// opaque, nil in a machine of characters, has rules that are one atom, or nothing where that is nil.
	opaque map[string]*atom
}

// compile returns a machine that reads characters or, given what is opaque to it, tokens of JSON. That of tokens does
// not count: whatever may come more than once may come any number of times.
func compile(defs []definition, opaque map[string]*atom) (*machine, error) {
	c := &compiler{m: newMachine(defs), rules: map[string]int{}, opaque: opaque}
	for i, d := range defs {
		c.rules[d.name] = i
	}
	c.m.starts = make([][]int, len(defs))
	for i, d := range defs {
		c.now = i
		if err := c.rule(i, d.alts); err != nil {
			return nil, fmt.Errorf("rule %s: %w", d.name, err)
		}
	}
	return c.m, nil
}

func (c *compiler) tokens() bool { return c.opaque != nil }

func (c *compiler) rule(id int, alts [][]item) error {
	var bodies [][]element
	for _, alt := range alts {
		var body []element
		for _, it := range alt {
			var err error
			if body, err = c.append(body, it); err != nil {
				return err
			}
		}
		bodies = append(bodies, body)
	}
	c.set(id, bodies...)
	return nil
}

// set writes the alternatives of a rule.
func (c *compiler) set(id int, bodies ...[]element) {
	for _, body := range bodies {
		c.m.starts[id] = append(c.m.starts[id], len(c.m.elements))
		c.m.elements = append(append(c.m.elements, body...), element{rule: c.now})
	}
}

// add makes a rule of its own, to be set.
func (c *compiler) add() int {
	c.m.starts = append(c.m.starts, nil)
	return len(c.m.starts) - 1
}

// append writes an item, as often as it is taken.
func (c *compiler) append(body []element, it item) ([]element, error) {
	one, err := c.once(it)
	if err != nil || len(one) == 0 {
		return body, err
	}
	least, most := it.least, it.most
	if c.tokens() && (most < 0 || most > 1) {
		least, most = 0, -1
	}
	for range least {
		body = append(body, one...)
	}
	last := -1
	for i := 0; most < 0 && i == 0 || i < most-least; i++ {
		id := c.add()
		next := one
		if most < 0 {
			last = id
		}
		if last >= 0 {
			next = append(one[:len(one):len(one)], element{'r', last, c.now})
		}
		c.set(id, next, nil)
		last = id
	}
	if last >= 0 {
		body = append(body, element{'r', last, c.now})
	}
	return body, nil
}

// once writes an item that is taken once.
func (c *compiler) once(it item) (out []element, err error) {
	switch it.kind {
	case '(':
		id := c.add()
		return []element{{'r', id, c.now}}, c.rule(id, it.group)
	case '[':
		return []element{c.atom(atom{kind: 'c', set: it.set})}, nil
	case 'r':
		if a, ok := c.opaque[it.text]; ok {
			if a != nil {
				out = append(out, c.atom(*a))
			}
			return out, nil
		}
		id, ok := c.rules[it.text]
		if !ok {
			return nil, fmt.Errorf("grammar: there is no rule %s", it.text)
		}
		return []element{{'r', id, c.now}}, nil
	}
	if c.tokens() {
		return []element{c.atom(token(it.text))}, nil
	}
	for _, r := range it.text {
		out = append(out, c.atom(atom{kind: 'c', set: charset{ranges: [][2]rune{{r, r}}}}))
	}
	return out, nil
}

// token is the atom of a literal.
func token(text string) atom {
	if len(text) == 1 {
		switch text[0] {
		case '{', '}', '[', ']', ':', ',':
			return atom{kind: text[0]}
		}
	}
	return atom{kind: 'l', texts: map[string]bool{text: true}}
}

func (c *compiler) atom(a atom) element {
	c.m.atoms = append(c.m.atoms, a)
	return element{'a', len(c.m.atoms) - 1, c.now}
}
