// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// release makes what is released of a tree for this machine's architecture, in an environment of its own.
func release(t *testing.T, tree string, env ...string) (out string) {
	t.Helper()
	out = t.TempDir()
	cmd := exec.Command("bash", "-c", "umask ${MASK:-022}; exec scripts/dist.sh")
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), append(env, "OUT="+out, "VERSION=v0-test", "ARCHS="+runtime.GOARCH, "SOURCE_DATE_EPOCH=1700000000")...)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("scripts/dist.sh: %v\n%s", err, said)
	}
	return out
}

// Two people who make a release of the same sources make the same bytes, wherever their copy lies and however their
// shells are set up; the sums are right, and what the program is made of is told as CycloneDX wants it.
func TestReleaseIsReproducible(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Mkdir(copied, 0o700); err != nil {
		t.Fatal(err)
	}
	// A copy of what git has and has not been told to ignore, with other times.
	script := "git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - 2>/dev/null | tar -xmf - -C " + copied
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, said)
	}
	first := release(t, root)
	second := release(t, copied, "MASK=077", "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "TMPDIR="+t.TempDir())
	sums := must[[]byte](t)(os.ReadFile(filepath.Join(first, "SHA256SUMS")))
	again := must[[]byte](t)(os.ReadFile(filepath.Join(second, "SHA256SUMS")))
	if string(sums) != string(again) || strings.Count(string(sums), "\n") != 2 {
		t.Errorf("the sums are\n%s, and of the copy\n%s", sums, again)
	}
	check := exec.Command("sha256sum", "-c", "--strict", "SHA256SUMS")
	check.Dir = first
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, said)
	}
	name := "afterimage-v0-test-linux-" + runtime.GOARCH
	if said, err := exec.Command("tar", "-xzf", filepath.Join(first, name+".tar.gz"), "-C", first).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, said)
	}
	for _, file := range []string{"man/afterimage-store-ls.1", "completion/afterimage.zsh", "deploy/systemd/afterimage-up.service", "LICENSE", "docs/operations.md"} {
		if !exists(filepath.Join(first, name, file)) {
			t.Errorf("the archive lacks %s", file)
		}
	}
	out, err := exec.Command(filepath.Join(first, name, "afterimage"), "version").Output()
	if err != nil || string(out) != "afterimage v0-test\n" {
		t.Errorf("the released program says %q (%v)", out, err)
	}
	checkBill(t, filepath.Join(first, name+".cdx.json"))
}

// checkBill has CycloneDX' own schema check a bill, and looks for what must be in it.
func checkBill(t *testing.T, file string) {
	t.Helper()
	const schema = `
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(repr(fault) if fault else 0)
`
	python := filepath.Join(root, ".cache", "venv", "bin", "python")
	if said, err := exec.Command(python, "-c", schema, file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	var bill struct {
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(must[[]byte](t)(os.ReadFile(file)), &bill); err != nil {
		t.Fatal(err)
	}
	if bill.Metadata.Component.Version != "v0-test" {
		t.Errorf("the bill is of version %q", bill.Metadata.Component.Version)
	}
	found := map[string]bool{}
	for _, c := range bill.Components {
		found[c.Name] = c.Version != ""
	}
	for _, want := range []string{"std", "github.com/alecthomas/kong", "github.com/ebitengine/purego"} {
		if !found[want] {
			t.Errorf("the bill lacks %s", want)
		}
	}
}
