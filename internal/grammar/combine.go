// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"slices"
	"strconv"
	"strings"
)

// constant writes one value.
func (w *writer) constant(n *node, _ string, _ int) (string, error) { return literal(n), nil }

// literal writes a value as it stands in JSON without white space.
func literal(n *node) string {
	switch n.kind {
	case '{':
		parts := make([]string, len(n.names))
		for i, name := range n.names {
			parts[i] = quoteJSON(name) + ` ":" ` + literal(n.members[i])
		}
		return `"{" ` + strings.Join(parts, ` "," `) + ` "}"`
	case '[':
		parts := make([]string, len(n.members))
		for i, m := range n.members {
			parts[i] = literal(m)
		}
		return `"[" ` + strings.Join(parts, ` "," `) + ` "]"`
	}
	return quote(string(n.raw))
}

// quoteJSON writes a string of JSON as a literal of a grammar.
func quoteJSON(s string) string { return quote(string(marshal(s))) }

// maxListed is how many values are written one beside the other. The library tries each against every token, so more are
// written by their letters.
const maxListed = 16

func (w *writer) enum(n *node, at string, _ int) (string, error) {
	if n.kind != '[' || len(n.members) == 0 {
		return "", fault(at, "must be a list of values")
	}
	var parts []string
	s, a := &spelling{}, atom{kind: 'l', texts: map[string]bool{}}
	for _, m := range n.members {
		if m.kind != 0 || len(n.members) <= maxListed {
			parts = append(parts, literal(m))
			continue
		}
		s.add(string(m.raw), true)
		a.texts[string(m.raw)] = true
	}
	if len(a.texts) > 0 {
		name, err := w.token(s.choice("", 0), at, a)
		if err != nil {
			return "", err
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " | "), nil
}

// any writes one of several schemas. With oneOf, a value that fits two of them cannot be told.
func (w *writer) any(n *node, at string, depth int) (string, error) {
	if n.kind != '[' || len(n.members) == 0 {
		return "", fault(at, "must be a list of schemas")
	}
	parts, rest, err := w.merged(n.members, at, depth)
	if err != nil {
		return "", err
	}
	for _, i := range rest {
		place := at + "/" + strconv.Itoa(i)
		body, err := w.value(n.members[i], place, depth+1)
		if err != nil {
			return "", err
		}
		name, err := w.add(body, place)
		if err != nil {
			return "", err
		}
		if !slices.Contains(parts, name) {
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, " | "), nil
}

func (w *writer) all(n *node, at string, depth int) (string, error) {
	if n.kind != '[' || len(n.members) != 1 {
		return "", fault(at, "of other than one schema cannot be held by a grammar")
	}
	return w.value(n.members[0], at+"/0", depth+1)
}

// ref writes a schema that is defined elsewhere in the same document, once.
func (w *writer) ref(n *node, at string, _ int) (string, error) {
	path, _ := n.literal.(string)
	if path != "#" && !strings.HasPrefix(path, "#/") {
		return "", fault(at, "must name a place in this schema, like #/$defs/x")
	}
	if name, ok := w.names[path]; ok {
		return name, nil
	}
	target := w.find(n)
	if target == nil {
		return "", fault(at, "%s is not in the schema", path)
	}
	name, err := w.reserve(path)
	if err != nil {
		return "", err
	}
	w.names[path] = name
	body, err := w.value(target, path, 0)
	if err != nil {
		return "", err
	}
	for i := range w.rules {
		if w.rules[i].name == name {
			w.rules[i].body = body
		}
	}
	return name, nil
}
