// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"slices"
	"strconv"
	"strings"
)

// merged writes those of several branches that are objects and begin with the same required members, such that what
// they share is written once and an answer need not choose before they differ. It returns the rules, and the branches that
// are left.
func (w *writer) merged(branches []*node, at string, depth int) (parts []string, rest []int, err error) {
	var shapes []shape
	var from []int
	for i, n := range branches {
		s, err := w.branch(n, at+"/"+strconv.Itoa(i), depth)
		if err != nil {
			return nil, nil, err
		}
		if s == nil || s.head() == "" {
			rest = append(rest, i)
			continue
		}
		shapes, from = append(shapes, *s), append(from, i)
	}
	for _, g := range groups(shapes) {
		if len(g) == 1 {
			rest = append(rest, from[g[0]])
			continue
		}
		var members []shape
		for _, i := range g {
			members = append(members, shapes[i])
		}
		body, err := w.shared(members, at)
		if err != nil {
			return nil, nil, err
		}
		name, err := w.add(`"{" ws `+body+` ws "}"`, at)
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, name)
	}
	return parts, rest, nil
}

// branch returns the shape of a branch that is an object and nothing else, or nil.
func (w *writer) branch(n *node, at string, depth int) (*shape, error) {
	for range maxDepth {
		ref := n.get("$ref")
		if ref == nil || only(n, at, "$ref") != nil {
			break
		}
		target := w.find(ref)
		if target == nil {
			return nil, nil
		}
		n, at, depth = target, ref.literal.(string), 0 // find has seen to it
	}
	for _, special := range []string{"$ref", "const", "enum", "anyOf", "oneOf", "allOf"} {
		if n.get(special) != nil {
			return nil, nil
		}
	}
	types, err := typesOf(n, at)
	if err != nil || len(types) != 1 || types[0] != "object" || only(n, at, allowed["object"]...) != nil || depth >= maxDepth {
		return nil, nil // what is wrong with it is said where it is written
	}
	if s, ok := w.shapes[n]; ok {
		return s, nil // nil while it is being read: it is written by itself then
	}
	return w.shape(n, at, depth+1)
}

// head returns the rule of the first member, "" unless there must be one.
func (s shape) head() string {
	if len(s.members) == 0 || !s.members[0].required {
		return ""
	}
	return s.members[0].rule
}

// groups puts the indices of shapes with the same head together.
func groups(shapes []shape) (out [][]int) {
	known := map[string]int{}
	for i, s := range shapes {
		g, ok := known[s.head()]
		if !ok || s.head() == "" {
			g = len(out)
			known[s.head()] = g
			out = append(out, nil)
		}
		out[g] = append(out[g], i)
	}
	return out
}

// shared writes what shapes with the same head may hold.
func (w *writer) shared(shapes []shape, at string) (string, error) {
	head := shapes[0].head()
	for i := range shapes {
		shapes[i].members = shapes[i].members[1:]
	}
	var parts []string
	for _, g := range groups(shapes) {
		var members []shape
		for _, i := range g {
			members = append(members, shapes[i])
		}
		part, err := w.following(members, at)
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	tail := parts[0]
	if len(parts) > 1 {
		slices.Sort(parts) // nothing comes first: after a bar, the notation reads on in the next line
		var err error
		if tail, err = w.add(strings.Join(slices.Compact(parts), " | "), at); err != nil {
			return "", err
		}
	}
	return w.add(head+" "+tail, at)
}

// following writes what shapes with the same head may hold after other members.
func (w *writer) following(shapes []shape, at string) (string, error) {
	if len(shapes) > 1 {
		body, err := w.shared(shapes, at)
		return `ws "," ws ` + body, err
	}
	_, rest, err := w.content(shapes[0])
	return rest, err
}
