// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	// The program that these tests run is built from it: with the import, a change of it makes results of earlier runs
	// worthless to `go test`.
	_ "afterimage/internal/cli"
)

// tool returns the path of a program on PATH, or of where `make deps-test` puts it, and the environment to run it in.
func tool(t *testing.T, name string) (path string, env []string) {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path, os.Environ()
	}
	folder := must[string](t)(filepath.Abs(filepath.Join(root, ".cache", "tools")))
	libs, _ := filepath.Glob(filepath.Join(folder, "usr", "lib", "*-linux-gnu"))
	env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(append(libs, filepath.Join(folder, "lib", "systemd")), ":"))
	for _, dir := range []string{"usr/bin", "bin"} {
		if path := filepath.Join(folder, dir, name); exists(path) {
			return path, env
		}
	}
	t.Fatalf("%s is missing: run `make deps-test`", name)
	return "", nil
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// shell runs a script of a shell in a folder of its own, with the program on PATH.
func shell(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, env := tool(t, name)
	bin := must[string](t)(program())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.gguf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(env, "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_DATA_DIRS="+dir, "XDG_CONFIG_HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// completions are lines as far as they were typed, and what the shell has to offer.
var completions = []struct{ line, want string }{
	{"afterimage sto", "store"},
	{"afterimage store ex", "export"},
	{"afterimage config check --role e", "encoder"},
	{"afterimage up --engine=de", "device"},
	{"afterimage --no-such", ""},
	{"afterimage up --model mod", "model.gguf"},
}

// The scripts are read by the shells themselves, and give what the program says. fish completes for scripts; in bash
// the function is called as readline does; in zsh its helpers, which need a terminal, are replaced by ones that print.
func TestCompletionInShells(t *testing.T) {
	check := func(t *testing.T, got string) {
		t.Helper()
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if len(lines) != len(completions) {
			t.Fatalf("got %d answers, want %d:\n%s", len(lines), len(completions), got)
		}
		for i, c := range completions {
			first, _, _ := strings.Cut(lines[i], "\t")
			if first != c.want && first != assigned(c.line)+c.want {
				t.Errorf("%s: got %q, want %q", c.line, lines[i], c.want)
			}
		}
	}
	t.Run("bash", func(t *testing.T) {
		script := "source <(afterimage completion bash); compopt() { COMPREPLY=($(compgen -f -- \"${COMP_WORDS[COMP_CWORD]}\")); }\n"
		for _, c := range completions {
			words := strings.ReplaceAll(strings.ReplaceAll(c.line, "=", " = "), "  ", " ")
			script += "COMP_WORDS=(" + words + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _afterimage; echo \"${COMPREPLY[*]}\"\n"
		}
		check(t, shell(t, "bash", "--norc", "-c", script))
	})
	t.Run("fish", func(t *testing.T) {
		script := "source (afterimage completion fish | psub)\n"
		if share := filepath.Join(root, ".cache", "tools", "usr", "share", "fish", "functions"); exists(share) {
			script = "set -p fish_function_path " + must[string](t)(filepath.Abs(share)) + "\n" + script
		}
		for _, c := range completions {
			script += "echo (complete -C '" + c.line + "')\n"
		}
		check(t, shell(t, "fish", "--no-config", "-c", script))
	})
	t.Run("zsh", func(t *testing.T) {
		script := "compdef() { : }; _files() { echo -n ${words[CURRENT]}*(N) }; _describe() { echo -n \"${(@P)${@[-1]}%%:*}\" }\n" +
			"source <(afterimage completion zsh)\n"
		for _, c := range completions {
			script += "words=(" + c.line + "); CURRENT=$#words; _afterimage; echo\n"
		}
		check(t, shell(t, "zsh", "-f", "-c", script))
	})
}

// assigned is the flag before a value, which shells that take both as one word repeat.
func assigned(line string) string {
	word := line[strings.LastIndex(line, " ")+1:]
	if i := strings.IndexByte(word, '='); i >= 0 {
		return word[:i+1]
	}
	return ""
}
