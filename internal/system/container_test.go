// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// stage is a stage of the container file as it would be built, in a folder in the place of its root.
type stage struct {
	t         *testing.T
	root, dir string // dir is the WORKDIR in it
	env       []string
}

func (s *stage) sh(line string) {
	s.t.Helper()
	cmd := exec.Command("bash", "-euc", line)
	cmd.Dir = filepath.Join(s.root, s.dir)
	cmd.Env = append(os.Environ(), s.env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", line, err, said)
	}
}

// run does what RUN says, but for what is installed or has been downloaded here.
func (s *stage) run(line string) {
	s.t.Helper()
	switch {
	case strings.HasPrefix(line, "apt-get "), line == "go mod download":
		return
	case strings.HasPrefix(line, "scripts/deps.sh "):
		s.sh("mkdir .cache && cp -a " + must[string](s.t)(filepath.Abs(filepath.Join(root, ".cache", "engine"))) + " .cache/")
	}
	s.sh(strings.ReplaceAll(line, " /engine", " "+s.root+"/engine"))
}

// copy copies what COPY names from a folder into the stage.
func (s *stage) copy(from string, words []string) {
	s.t.Helper()
	to := words[len(words)-1]
	folder := to // that there has to be
	if !strings.HasSuffix(to, "/") && to != "." {
		folder = filepath.Dir(to)
	}
	if !filepath.IsAbs(to) {
		to, folder = filepath.Join(s.dir, to), filepath.Join(s.dir, folder)
	}
	to = filepath.Join(s.root, to)
	s.sh("mkdir -p " + filepath.Join(s.root, folder))
	for _, w := range words[:len(words)-1] {
		src := filepath.Join(from, w)
		if st, err := os.Stat(src); err != nil {
			s.t.Fatalf("COPY %q: %v", words, err)
		} else if st.IsDir() {
			s.sh("mkdir -p " + to + " && cp -a " + src + "/. " + to)
		} else {
			s.sh("cp " + src + " " + to)
		}
	}
}

// buildContext is what the build is given: what git has, or has not been told to ignore, without what .dockerignore names.
func buildContext(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := "git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - 2>/dev/null | tar -xf - -C " + dir
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for line := range strings.Lines(string(must[[]byte](t)(os.ReadFile(filepath.Join(dir, ".dockerignore"))))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "/"); ok {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// The container file's steps work, in its order, with what it has copied by then: scratch folders stand for the roots
// of its stages, and what is here for what it downloads. The program that comes out finds the engine where it is put.
func TestContainerFileBuilds(t *testing.T) {
	needEngine(t)
	given := buildContext(t)
	stages := map[string]*stage{}
	var s *stage
	for line := range strings.Lines(string(must[[]byte](t)(os.ReadFile(filepath.Join(given, "deploy", "container", "Containerfile"))))) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		rest := strings.TrimSpace(strings.TrimPrefix(line, words[0]))
		switch words[0] {
		case "FROM":
			s = &stage{t: t, root: t.TempDir(), dir: "/"}
			stages[words[len(words)-1]] = s
		case "WORKDIR":
			s.dir = words[1]
			if err := os.MkdirAll(filepath.Join(s.root, s.dir), 0o755); err != nil {
				t.Fatal(err)
			}
		case "ARG", "ENV":
			s.env = append(s.env, rest)
		case "COPY":
			from, words := given, words[1:]
			if name, ok := strings.CutPrefix(words[0], "--from="); ok {
				from, words = stages[name].root, words[1:]
			}
			s.copy(from, words)
		case "RUN":
			s.run(rest)
		}
	}
	bin := filepath.Join(s.root, "usr", "local", "bin", "afterimage")
	if out, err := exec.Command(bin, "version").Output(); err != nil || string(out) != "afterimage dev\n" {
		t.Errorf("the program of the image says %q (%v)", out, err)
	}
	dir := strings.TrimPrefix(s.env[len(s.env)-1], "AFTERIMAGE_ENGINE_DIR=")
	cmd := exec.Command(bin, "doctor", "--only", "engine", "--engine-dir", filepath.Join(s.root, dir))
	cmd.Dir = s.root // no folder in which `make deps` has left anything
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), filepath.Join(s.root, dir)) {
		t.Errorf("the image's engine: %v\n%s", err, out)
	}
}

// bookworm is the newest that the image's base has of what native libraries may want.
var bookworm = map[string][]int{"GLIBC": {2, 36}, "GLIBCXX": {3, 4, 30}, "CXXABI": {1, 3, 13}, "GCC": {12, 0, 0}}

// The engine's libraries want nothing that the image has not: no newer glibc, and no library but those of the base,
// libstdc++6, and each other.
func TestContainerHasWhatLibrariesNeed(t *testing.T) {
	needEngine(t)
	all, _ := filepath.Glob(filepath.Join(root, ".cache", "engine", "*", "*.so*"))
	if len(all) == 0 {
		t.Fatal("no libraries")
	}
	there := []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libstdc++.so.6", "libgcc_s.so.1"}
	for _, f := range all {
		there = append(there, filepath.Base(f))
	}
	for _, file := range all {
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, name := range must[[]string](t)(f.ImportedLibraries()) {
			// The Vulkan loader comes with the GPU's driver; without it that back end is not loaded.
			if !slices.Contains(there, name) && !(name == "libvulkan.so.1" && filepath.Base(file) == "libggml-vulkan.so") {
				t.Errorf("%s needs %s, which the image has not", filepath.Base(file), name)
			}
		}
		for _, sym := range must[[]elf.ImportedSymbol](t)(f.ImportedSymbols()) {
			if newer(sym.Version) {
				t.Errorf("%s needs %s of %s, newer than the image's base", filepath.Base(file), sym.Name, sym.Version)
			}
		}
	}
	if !newer("GLIBC_2.38") || !newer("GLIBCXX_3.4.31") || newer("GLIBC_2.4") || newer("GLIBC_2.36") || newer("") {
		t.Error("versions are compared wrongly")
	}
}

var versioned = regexp.MustCompile(`^([A-Z]+)_(\d[\d.]*)$`)

// newer says whether a version of a symbol is newer than what bookworm has.
func newer(version string) bool {
	m := versioned.FindStringSubmatch(version)
	if m == nil || bookworm[m[1]] == nil {
		return false
	}
	var got []int
	for part := range strings.SplitSeq(m[2], ".") {
		n, _ := strconv.Atoi(part)
		got = append(got, n)
	}
	return slices.Compare(got, bookworm[m[1]]) > 0
}
