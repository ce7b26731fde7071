// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the module path; root is its folder as tests of this package see it.
const (
	module = "afterimage"
	root   = "../.."
)

// listed is what `go list -json` says of a package.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	IgnoredGoFiles  []string
	TestGoFiles     []string
	XTestGoFiles    []string
	Imports         []string
}

// list returns all packages of the module.
func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=Dir,ImportPath,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles,Imports", "./...")
	cmd.Dir = root
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, errs.String())
	}
	var pkgs []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("go list wrote something that is not JSON: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// short turns an import path of the module into a name of the table.
func short(importPath string) (string, bool) {
	if s, ok := strings.CutPrefix(importPath, module+"/internal/"); ok {
		return s, true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func TestLayers(t *testing.T) {
	var pkgs []Package
	for _, l := range list(t) {
		name, ok := short(l.ImportPath)
		if !ok {
			t.Errorf("package %s: all packages are below cmd or internal", l.ImportPath)
			continue
		}
		p := Package{Name: name}
		for _, imp := range l.Imports {
			if s, ok := short(imp); ok {
				p.Imports = append(p.Imports, s)
			}
		}
		if len(l.GoFiles) == 0 && len(l.IgnoredGoFiles) == 0 {
			t.Errorf("package %s has tests only: give it a doc.go, or put the tests where the code is", name)
		}
		pkgs = append(pkgs, p)
	}
	if !slices.ContainsFunc(pkgs, func(p Package) bool { return p.Name == "layers" }) {
		t.Fatalf("go list found %d packages and not this one: the check looks at the wrong folder", len(pkgs))
	}
	for _, msg := range Check(Table, pkgs) {
		t.Error(msg)
	}
}

func TestCheck(t *testing.T) {
	table := map[string]Rule{
		"base":     {Layer: 0, Duty: "the base of it"},
		"left":     {Layer: 1, Duty: "does the left", Beside: []string{"right"}},
		"right":    {Layer: 1, Duty: "does the right"},
		"right/in": {Layer: 1, Duty: "inside of right"},
		"roof":     {Layer: 2, Duty: "keeps the rain off"},
		"hut":      {Layer: 2, Duty: "stands by itself", Only: []string{"base"}},
		"kit":      {Layer: 9, Duty: "helps the tests", TestsOnly: true},
		"blank":    {Layer: 0},
	}
	f := func(name string, imports []string, want ...string) {
		t.Helper()
		got := Check(table, []Package{{Name: name, Imports: imports}})
		if len(want) == 0 {
			if len(got) != 0 {
				t.Errorf("%s importing %v: got %q, want no complaint", name, imports, got)
			}
			return
		}
		if len(got) != 1 {
			t.Errorf("%s importing %v: got %d complaints %q, want one", name, imports, len(got), got)
			return
		}
		for _, w := range want {
			if !strings.Contains(got[0], w) {
				t.Errorf("%s importing %v: complaint %q lacks %q", name, imports, got[0], w)
			}
		}
	}
	f("roof", []string{"base", "left", "right"})
	f("left", []string{"right"})
	f("right/in", []string{"right"})
	f("hut", []string{"base"})
	f("kit", []string{"roof"})
	f("base", []string{"roof"}, "base must not import roof", "downwards", "the base of it", "keeps the rain off")
	f("right", []string{"left"}, "right must not import left", "stand alone", "does the right", "does the left")
	f("hut", []string{"left"}, "nothing but base")
	f("roof", []string{"kit"}, "for tests only")
	f("shed", nil, "shed is not in the table", "add it to internal/layers/table.go")
	f("blank", nil, "blank has no duty")
}

// TestTable checks that the table names only packages that it has.
func TestTable(t *testing.T) {
	for name, r := range Table {
		for _, other := range append(append([]string{}, r.Beside...), r.Only...) {
			if _, ok := Table[other]; !ok {
				t.Errorf("%s names %s, which the table does not have", name, other)
			}
		}
		for _, other := range r.Beside {
			if Table[other].Layer != r.Layer {
				t.Errorf("%s (layer %d) has %s (layer %d) beside it", name, r.Layer, other, Table[other].Layer)
			}
		}
	}
}

// sources calls f for each Go file of the module with its path below the root and its content.
func sources(t *testing.T, f func(name string, src []byte)) {
	t.Helper()
	n := 0
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.Contains(path, "/testdata/") {
				return err
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			n++
			f(strings.TrimPrefix(filepath.ToSlash(path), root+"/"), src)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 10 {
		t.Fatalf("found %d Go files: the check looks at the wrong folder", n)
	}
}
