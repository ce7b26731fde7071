// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The sizes at which a file has to be split. Well before them, 250 lines ask whether it should.
const (
	maxLines     = 600
	maxTestLines = 900
)

const licence = "// SPDX-License-Identifier: Apache-2.0\n"

// fileFaults returns what is wrong with the source file called name.
func fileFaults(name string, src []byte) []string {
	var out []string
	if !bytes.HasPrefix(src, []byte(licence)) {
		out = append(out, name+": the first line must be "+strings.TrimSpace(licence))
	}
	limit := maxLines
	if strings.HasSuffix(name, "_test.go") {
		limit = maxTestLines
	}
	if n := bytes.Count(src, []byte("\n")); n > limit {
		out = append(out, name+": longer than its limit: split it by concept")
	}
	return out
}

func TestFiles(t *testing.T) {
	sources(t, func(name string, src []byte) {
		for _, msg := range fileFaults(name, src) {
			t.Error(msg)
		}
	})
}

func TestFileFaults(t *testing.T) {
	f := func(name, src string, want int) {
		t.Helper()
		if got := fileFaults(name, []byte(src)); len(got) != want {
			t.Errorf("%s: got faults %q, want %d", name, got, want)
		}
	}
	long := strings.Repeat("\n", maxLines)
	f("a.go", licence+"\npackage a\n", 0)
	f("a.go", "package a\n", 1)
	f("a.go", licence+long, 1)
	f("a_test.go", licence+long, 0)
	f("a_test.go", licence+long+long, 1)
	f("a.go", long+"\n", 2)
}

// TestPackageDocs checks that each package has exactly one package comment, in the form that godoc
// shows well.
func TestPackageDocs(t *testing.T) {
	docs := map[string][]string{} // folder -> files with a package comment
	names := map[string]string{}  // folder -> package name
	sources(t, func(name string, src []byte) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		dir := filepath.Dir(name)
		names[dir] = f.Name.Name
		if f.Doc == nil || strings.TrimSpace(f.Doc.Text()) == "" {
			return
		}
		docs[dir] = append(docs[dir], name)
		want := "Package " + f.Name.Name + " "
		if f.Name.Name == "main" {
			want = "Command " + filepath.Base(dir) + " "
		}
		if !strings.HasPrefix(f.Doc.Text(), want) {
			t.Errorf("%s: the package comment must begin with %q", name, want)
		}
	})
	for dir, pkg := range names {
		switch files := docs[dir]; len(files) {
		case 1:
		case 0:
			t.Errorf("%s: package %s has no package comment", dir, pkg)
		default:
			t.Errorf("%s: package %s has %d package comments: %s", dir, pkg, len(files), strings.Join(files, ", "))
		}
	}
}
