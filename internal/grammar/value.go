// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ignored are the keywords that change nothing about what is valid, or that are read beside others.
var ignored = []string{
	"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
	"deprecated", "readOnly", "writeOnly", "type",
}

// allowed are the keywords that each type of value takes.
var allowed = map[string][]string{
	"object":  {"properties", "required", "additionalProperties"},
	"array":   {"items", "minItems", "maxItems"},
	"string":  {"minLength", "maxLength", "format"},
	"integer": {}, "number": {}, "boolean": {}, "null": {},
}

// value returns the body of a rule for schema n.
func (w *writer) value(n *node, at string, depth int) (string, error) {
	if depth > maxDepth {
		return "", fault(at, "more than %d levels", maxDepth)
	}
	switch {
	case n.kind == 0 && n.literal == true:
		return "value", nil
	case n.kind != '{':
		return "", fault(at, "must be an object")
	case w.ways(n) > maxWays:
		return "", fault(at, "has more than %d ways to begin, or comes back to itself without a value between", maxWays)
	}
	for _, special := range []struct {
		name  string
		write func(*node, string, int) (string, error)
	}{{"$ref", w.ref}, {"const", w.constant}, {"enum", w.enum}, {"anyOf", w.any}, {"oneOf", w.any}, {"allOf", w.all}} {
		m := n.get(special.name)
		if m == nil {
			continue
		}
		if err := only(n, at, special.name); err != nil {
			return "", err
		}
		return special.write(m, at+"/"+special.name, depth)
	}
	return w.typed(n, at, depth)
}

// only refuses keywords beside those that are named.
func only(n *node, at string, names ...string) error {
	for _, name := range n.names {
		if !slices.Contains(names, name) && !slices.Contains(ignored, name) {
			return fault(at+"/"+name, "cannot be held by a grammar here")
		}
	}
	return nil
}

// typed writes a value of the types that n names.
func (w *writer) typed(n *node, at string, depth int) (string, error) {
	types, err := typesOf(n, at)
	if err != nil {
		return "", err
	}
	var keywords, bodies []string
	for _, t := range types {
		keywords = append(keywords, allowed[t]...)
	}
	if len(types) == 0 {
		return "value", only(n, at)
	}
	if err := only(n, at, keywords...); err != nil {
		return "", err
	}
	for _, t := range types {
		body := t
		switch t {
		case "object":
			body, err = w.object(n, at, depth)
		case "array":
			body, err = w.array(n, at, depth)
		case "string":
			body, err = w.text(n, at)
		}
		if err != nil {
			return "", err
		}
		bodies = append(bodies, body)
	}
	return strings.Join(bodies, " | "), nil
}

// typesOf reads the keyword type, or guesses it from those that belong to one.
func typesOf(n *node, at string) ([]string, error) {
	m := n.get("type")
	if m == nil {
		for _, t := range []string{"object", "array", "string"} {
			if slices.ContainsFunc(n.names, func(name string) bool { return slices.Contains(allowed[t], name) }) {
				return []string{t}, nil
			}
		}
		return nil, nil
	}
	all := []*node{m}
	if m.kind == '[' {
		all = m.members
	}
	var out []string
	for _, v := range all {
		t, _ := v.literal.(string)
		if _, ok := allowed[t]; !ok {
			return nil, fault(at+"/type", "%s is no type", v.raw)
		}
		out = append(out, t)
	}
	return out, nil
}

// text writes a string.
func (w *writer) text(n *node, at string) (string, error) {
	if f := n.get("format"); f != nil {
		return "", fault(at+"/format", "cannot be held by a grammar here")
	}
	repeat, err := bounds(n, at, "minLength", "maxLength")
	if err != nil || repeat == "" {
		return "string", err
	}
	return w.token(`"\"" char`+repeat+` "\""`, at, atom{kind: 's'})
}

// bounds reads a pair of limits as a repetition; "" when there is none.
func bounds(n *node, at, low, high string) (string, error) {
	least, err := count(n, at, low)
	if err != nil {
		return "", err
	}
	most, err := count(n, at, high)
	switch {
	case err != nil:
		return "", err
	case least < 0 && most < 0:
		return "", nil
	case most < 0:
		return fmt.Sprintf("{%d,}", max(least, 0)), nil
	case most < least:
		return "", fault(at+"/"+high, "is less than %s", low)
	}
	return fmt.Sprintf("{%d,%d}", max(least, 0), most), nil
}

// count reads a limit; -1 when it is not there.
func count(n *node, at, name string) (int, error) {
	m := n.get(name)
	if m == nil {
		return -1, nil
	}
	num, _ := m.literal.(json.Number)
	v, err := strconv.Atoi(string(num))
	if err != nil || v < 0 || v > maxRepeat {
		return 0, fault(at+"/"+name, "must be a whole number from 0 to %d", maxRepeat)
	}
	return v, nil
}

// array writes a list.
func (w *writer) array(n *node, at string, depth int) (string, error) {
	item := "value"
	if m := n.get("items"); m != nil {
		body, err := w.value(m, at+"/items", depth+1)
		if err != nil {
			return "", err
		}
		if item, err = w.add(body, at+"/items"); err != nil {
			return "", err
		}
	}
	least, err := count(n, at, "minItems")
	if err != nil {
		return "", err
	}
	most, err := count(n, at, "maxItems")
	if err != nil {
		return "", err
	}
	more := fmt.Sprintf(`( ws "," ws %s )`, item)
	switch {
	case most == 0 && least <= 0:
		return `"[" ws "]"`, nil
	case most >= 0 && most < least:
		return "", fault(at+"/maxItems", "is less than minItems")
	case most < 0 && least > 1:
		more += fmt.Sprintf("{%d,}", least-1)
	case most < 0:
		more += "*"
	default:
		more += fmt.Sprintf("{%d,%d}", max(least-1, 0), most-1)
	}
	if least > 0 {
		return fmt.Sprintf(`"[" ws %s %s ws "]"`, item, more), nil
	}
	return fmt.Sprintf(`"[" ws ( %s %s ws )? "]"`, item, more), nil
}
