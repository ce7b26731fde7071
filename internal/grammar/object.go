// SPDX-License-Identifier: Apache-2.0

package grammar

import "fmt"

// member is one property of an object.
type member struct {
	rule     string // writes name and value
	required bool
}

// object writes an object. Its members come in order; each has a rule for what may follow it.
func (w *writer) object(n *node, at string, depth int) (string, error) {
	members, err := w.members(n, at, depth)
	if err != nil {
		return "", err
	}
	extra, err := w.extra(n, at, depth, len(members) > 0)
	if err != nil {
		return "", err
	}
	// rest writes what may follow when a member is there already, first when none is.
	rest, first := "", ""
	if extra != "" {
		rest = fmt.Sprintf(`( ws "," ws %s )*`, extra)
		first = fmt.Sprintf(`( %s %s )?`, extra, rest)
	}
	for i := len(members) - 1; i >= 0; i-- {
		m := members[i]
		start, next := m.rule+" "+rest, `ws "," ws `+m.rule
		if !m.required {
			// Nothing comes first: after a bar, the notation reads on in the next line.
			start, next = first+" | "+start, "( "+next+" )?"
		}
		if first, err = w.add(start); err != nil {
			return "", err
		}
		if rest, err = w.add(next + " " + rest); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf(`"{" ws %s ws "}"`, first), nil
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
		value, err := w.add(body)
		if err != nil {
			return nil, err
		}
		rule, err := w.add(quoteJSON(name) + ` ":" ws ` + value)
		if err != nil {
			return nil, err
		}
		out = append(out, member{rule, required[name]})
	}
	return out, nil
}

// extra returns what writes a member beyond the properties, "" when there may be none. Without
// properties there may be any.
func (w *writer) extra(n *node, at string, depth int, properties bool) (string, error) {
	m := n.get("additionalProperties")
	if m == nil && properties || m != nil && m.literal == false && m.kind == 0 {
		return "", nil
	}
	body := "value"
	if m != nil {
		var err error
		if body, err = w.value(m, at+"/additionalProperties", depth+1); err != nil {
			return "", err
		}
	}
	value, err := w.add(body)
	if err != nil {
		return "", err
	}
	return w.add(`string ":" ws ` + value)
}
