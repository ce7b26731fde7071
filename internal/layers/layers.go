// SPDX-License-Identifier: Apache-2.0

// Package layers holds the order of the packages: which duty each one has and which others it may
// import. Its tests check the source tree against that table, and a few rules of the house that a
// compiler does not: one package comment per package, the licence line, file sizes.
//
// An import points to a lower layer. Within a layer it needs an entry in Beside, so that two packages
// of one layer stay replaceable without a look at each other. Tests may import what they like.
package layers

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Rule is one row of the table.
type Rule struct {
	Layer int
	Duty  string // one sentence without its full stop
	// Beside lists packages of the same layer that this one may import.
	Beside []string
	// Only, when set, is all that this package may import, whatever the layers say.
	Only []string
	// TestsOnly: no package but those that are TestsOnly themselves may import it outside tests.
	TestsOnly bool
}

// Package is what the check needs to know of one package of the module.
type Package struct {
	Name    string   // import path below afterimage/internal, or "cmd/..."
	Imports []string // of its non-test files, named likewise; other modules left out
}

// Check returns one message per breach of table, in order of the packages.
func Check(table map[string]Rule, pkgs []Package) []string {
	var out []string
	for _, p := range pkgs {
		from, ok := table[p.Name]
		if !ok {
			out = append(out, fmt.Sprintf(
				"package %s is not in the table: add it to internal/layers/table.go with its layer and its duty", p.Name))
			continue
		}
		if len(strings.Fields(from.Duty)) < 3 {
			out = append(out, fmt.Sprintf("package %s has no duty in the table: say in one sentence what it is for", p.Name))
		}
		for _, name := range p.Imports {
			to, ok := table[name]
			if !ok {
				continue // reported where that package is checked
			}
			if why := from.refuses(p.Name, name, to); why != "" {
				out = append(out, fmt.Sprintf("%s must not import %s: %s\n\t%s (layer %d): %s\n\t%s (layer %d): %s",
					p.Name, name, why, p.Name, from.Layer, from.Duty, name, to.Layer, to.Duty))
			}
		}
	}
	return out
}

// refuses says why the package called name, which r is the rule of, may not import the one called
// target; "" when it may.
func (r Rule) refuses(name, target string, to Rule) string {
	switch {
	case to.TestsOnly && !r.TestsOnly:
		return target + " is for tests only"
	case r.Only != nil && !slices.Contains(r.Only, target):
		return "it may import nothing but " + strings.Join(r.Only, ", ")
	case r.Only != nil:
		return ""
	case to.Layer > r.Layer:
		return "an import points downwards"
	case to.Layer == r.Layer && !slices.Contains(r.Beside, target) && path.Dir(name) != target:
		return "packages of one layer stand alone"
	}
	return ""
}
