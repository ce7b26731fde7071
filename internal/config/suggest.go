// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// meantKey returns "; did you mean X?" if a key is near enough to parts, else "".
func meantKey(parts []string) string {
	var names, here []string // all tables and keys, and the keys of this table by themselves
	for _, k := range keys {
		table, bare, _ := strings.Cut(k.Name, ".")
		names = append(names, k.Name, table)
		if len(parts) == 2 && table == parts[0] {
			here = append(here, bare)
		}
	}
	best := ""
	if len(here) > 0 { // beside the name of its table, any two short words are near
		if best = nearest(parts[1], here); best != "" {
			best = parts[0] + "." + best
		}
	} else {
		best = nearest(strings.Join(parts, "."), names)
	}
	if best != "" {
		return "; did you mean " + best + "?"
	}
	// The right name in the wrong table, or in none.
	last := parts[len(parts)-1]
	for _, k := range keys {
		if _, key, _ := strings.Cut(k.Name, "."); key == last {
			return "; did you mean " + k.Name + "?"
		}
	}
	return "; see 'afterimage config print' for all keys"
}

// meantEnv returns "; did you mean X?" if a variable is near enough to name, else "".
func meantEnv(name string) string {
	var names []string
	for _, k := range keys {
		names = append(names, k.Env())
	}
	if best := nearest(name, names); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// nearest returns the name with the fewest edits to word, "" if none is within a third of its length.
func nearest(word string, names []string) string {
	best, least := "", len(word)/3+1
	for _, n := range names {
		if d := edits(word, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// edits returns the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
