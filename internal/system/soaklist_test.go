// SPDX-License-Identifier: Apache-2.0

package system

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSoakListIsWhole: `make soak` names tests that there are, in all packages that have long versions of tests.
func TestSoakListIsWhole(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\tsoak '?([\w|]+)'? (\S+) \d+m; \\$`).FindAllStringSubmatch(string(makefile), -1) {
		listed[row[2]] = true
		for name := range strings.SplitSeq(row[1], "|") {
			if tests := testFiles(t, row[2]); !strings.Contains(tests, "\nfunc "+name+"(t *testing.T) {") {
				t.Errorf("the Makefile runs %s of internal/%s, which has none", name, row[2])
			}
		}
	}
	long := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(testFiles(t, path[min(len(path), 3):]), `os.Getenv("AFTERIMAGE_`+`SOAK")`) {
			long[path[3:]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(listed, long) {
		t.Errorf("the Makefile lists %q, long versions are in %q", slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(long)))
	}
}

// testFiles joins the tests of a package of internal.
func testFiles(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}
