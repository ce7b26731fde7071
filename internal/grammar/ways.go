// SPDX-License-Identifier: Apache-2.0

package grammar

import "strings"

// maxWays bounds how many ways one value may begin. The library follows each of them, the same one twice
// too, so that definitions that each name the next one twice would keep it for ever.
const maxWays = 4096

// ways counts the ways in which a value of schema n may begin, at most maxWays+1: the alternatives that
// are looked at before its first character. A schema that comes back to itself before that has no first
// character: its ways are more than any limit.
func (w *writer) ways(n *node) int {
	if known, ok := w.begins[n]; ok {
		return known
	}
	w.begins[n] = maxWays + 1 // for whoever comes back here before it is known
	sum := 1
	switch {
	case n.get("$ref") != nil:
		if target := w.find(n.get("$ref")); target != nil {
			sum = w.ways(target)
		}
	case n.get("enum") != nil:
		sum = len(n.get("enum").members)
	default:
		for _, several := range []string{"anyOf", "oneOf", "allOf"} {
			if list := n.get(several); list != nil {
				sum = 0
				for _, m := range list.members {
					sum = min(sum+w.ways(m), maxWays+1)
				}
				break
			}
		}
	}
	w.begins[n] = sum
	return sum
}

// find returns the schema that a $ref names, nil if there is none in this document.
func (w *writer) find(ref *node) *node {
	path, _ := ref.literal.(string)
	if path != "#" && !strings.HasPrefix(path, "#/") {
		return nil
	}
	target := w.root
	for _, step := range strings.Split(strings.TrimPrefix(path, "#"), "/")[1:] {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if target = target.get(step); target == nil {
			return nil
		}
	}
	return target
}
