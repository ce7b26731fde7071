// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"fmt"
	"strings"
)

// member is one property of an object.
type member struct {
	rule     string // writes name and value
	required bool
}

// shape is what an object may hold: its members in order, then any number of extra ones ("" for none).
type shape struct {
	members []member
	extra   string
	at      string // its place in the schema
}

// object writes an object.
func (w *writer) object(n *node, at string, depth int) (string, error) {
	s, err := w.shape(n, at, depth)
	if err != nil {
		return "", err
	}
	first, _, err := w.content(*s)
	return fmt.Sprintf(`"{" ws %s ws "}"`, first), err
}

// shape reads the keywords of an object, once.
func (w *writer) shape(n *node, at string, depth int) (*shape, error) {
	if s := w.shapes[n]; s != nil {
		return s, nil
	}
	w.shapes[n] = nil
	s := &shape{at: at}
	var err error
	if s.members, err = w.members(n, at, depth); err != nil {
		return nil, err
	}
	var names []string
	if len(s.members) > 0 {
		names = n.get("properties").names
	}
	if s.extra, err = w.extra(n, at, depth, names); err != nil {
		return nil, err
	}
	w.shapes[n] = s
	return s, nil
}

// content writes the members of an object, each with a rule for what may follow it: first is for an object that has
// none yet, rest for one that has.
func (w *writer) content(s shape) (first, rest string, err error) {
	more := "" // what comes next when something does
	least := false
	if s.extra != "" {
		rest = fmt.Sprintf(`( ws "," ws %s )*`, s.extra)
		more = s.extra + " " + rest
	}
	for i := len(s.members) - 1; i >= 0; i-- {
		m := s.members[i]
		next := strings.TrimSpace(m.rule + " " + rest)
		if !m.required && more != "" {
			next += " | " + more
		}
		if more = next; next != m.rule {
			if more, err = w.add(next, s.at); err != nil {
				return "", "", err
			}
		}
		least = least || m.required
		if rest, err = w.add(optional(`ws "," ws `+more, least), s.at); err != nil {
			return "", "", err
		}
	}
	if more == "" {
		return "", "", nil
	}
	return optional(more, least), rest, nil
}

// optional writes a sequence that must come or may.
func optional(sequence string, must bool) string {
	if must {
		return sequence
	}
	return "( " + sequence + " )?"
}

// members reads properties and required.
func (w *writer) members(n *node, at string, depth int) ([]member, error) {
	required := map[string]bool{}
	if r := n.get("required"); r != nil {
		for _, m := range r.members {
			name, ok := m.literal.(string)
			if !ok || n.get("properties").get(name) == nil {
				return nil, fault(at+"/required", "%s is not among the properties", m.raw)
			}
			required[name] = true
		}
	}
	props := n.get("properties")
	if props == nil {
		return nil, nil
	}
	if props.kind != '{' {
		return nil, fault(at+"/properties", "must be an object")
	}
	var out []member
	for i, name := range props.names {
		body, err := w.value(props.members[i], at+"/properties/"+name, depth+1)
		if err != nil {
			return nil, err
		}
		value, err := w.add(body, at+"/properties/"+name)
		if err != nil {
			return nil, err
		}
		rule, err := w.add(quoteJSON(name)+` ":" ws `+value, at+"/properties/"+name)
		if err != nil {
			return nil, err
		}
		out = append(out, member{rule, required[name]})
	}
	return out, nil
}

// extra returns what writes a member besides those that are named, "" when there may be none. Without names there may be
// any.
func (w *writer) extra(n *node, at string, depth int, names []string) (string, error) {
	m := n.get("additionalProperties")
	if m == nil && len(names) > 0 || m != nil && m.literal == false && m.kind == 0 {
		return "", nil
	}
	body := "value"
	if m != nil {
		var err error
		if body, err = w.value(m, at+"/additionalProperties", depth+1); err != nil {
			return "", err
		}
	}
	value, err := w.add(body, at+"/additionalProperties")
	if err != nil {
		return "", err
	}
	keys, err := w.keysBeside(names, at+"/additionalProperties")
	if err != nil {
		return "", err
	}
	return w.add(keys+` ":" ws `+value, at+"/additionalProperties")
}
