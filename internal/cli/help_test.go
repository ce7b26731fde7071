// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"afterimage/internal/config"
	"afterimage/internal/man"
)

// commands are the program and all commands that people see, by path.
func commands() map[string]*kong.Node {
	all := map[string]*kong.Node{}
	for _, n := range man.Pages((Program{}).parser().Model) {
		all[man.Command(n)] = n
	}
	return all
}

// invocation finds the program's own words in an example.
var invocation = regexp.MustCompile(`afterimage ([^)>|]+)`)

// wordsOf splits a command line as a shell does that knows double quotes.
func wordsOf(line string) (words []string) {
	for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, m[1]+m[2])
	}
	return words
}

// Every command that can be run has examples, which are of that command and can be parsed, and every example
// belongs to a command.
func TestExamples(t *testing.T) {
	all, parser := commands(), (Program{}).parser()
	for command, n := range all {
		if len(n.Children) > 0 && n.DefaultCmd == nil && command != "" {
			continue // it only groups others
		}
		if len(examples[command]) == 0 {
			t.Errorf("afterimage %s has no example; give it one in examples.go", command)
		}
		for _, e := range examples[command] {
			m := invocation.FindStringSubmatch(e.Line)
			if m == nil || !strings.HasPrefix(m[1], command) || e.Does == "" || strings.HasSuffix(e.Does, ".") {
				t.Errorf("afterimage %s: %+v is no example of it", command, e)
				continue
			}
			if _, err := parser.Parse(wordsOf(m[1])); err != nil {
				t.Errorf("%s: %v", e.Line, err)
			}
		}
	}
	for command := range examples {
		if all[command] == nil {
			t.Errorf("examples of %q, which is no command", command)
		}
	}
}

// The help of every command shows what it does, its examples and exit statuses; `help` says the same.
func TestHelp(t *testing.T) {
	for command, n := range commands() {
		words := strings.Fields(command)
		var out, errs strings.Builder
		p := Program{Args: append(words, "--help"), Stdout: &out, Stderr: &errs}
		if status := p.Main(t.Context()); status != exitOK || errs.Len() > 0 {
			t.Errorf("%s --help: status %d, %s", command, status, errs.String())
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		if shown := strings.Contains(text, "Examples:"); shown != (len(examples[command]) > 0) {
			t.Errorf("%s --help: heading of examples: %v, with %d examples", command, shown, len(examples[command]))
		}
		for _, want := range []string{strings.Join(strings.Fields(n.Help), " "), "Exit status: 0 ", " 1 ", " 2 "} {
			if !strings.Contains(text, want) && n.DefaultCmd == nil {
				t.Errorf("%s --help does not show %q:\n%s", command, want, out.String())
			}
		}
		if len(words) > 0 && words[0] != "store" { // one tree is enough
			continue
		}
		var same strings.Builder
		p = Program{Args: append([]string{"help"}, words...), Stdout: &same, Stderr: &errs}
		if status := p.Main(t.Context()); status != exitOK || same.String() != out.String() {
			t.Errorf("help %s: status %d, and another text than --help", command, status)
		}
	}
}

// The exit statuses are those that the documents list.
func TestExitStatus(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("[log]\nlevel = \"loud\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(want int, args ...string) {
		t.Helper()
		var out, errs strings.Builder
		p := Program{Args: args, Stdout: &out, Stderr: &errs}
		if got := p.Main(t.Context()); got != want {
			t.Errorf("%q: status %d, want %d:\n%s%s", args, got, want, out.String(), errs.String())
		}
	}
	path := filepath.Join(t.TempDir(), "good.toml")
	if err := os.WriteFile(path, []byte("[log]\nlevel = \"debug\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const gone = "/does/not/exist"
	f(0)
	f(0, "version")
	f(0, "config", "check", path)
	f(0, "config", "check", "--config", path)
	f(0, "config", "print", "-c", path, path)
	f(0, "config", "check")
	f(1, "top", "--url", "http://127.0.0.1:1")
	f(1, "trace", "--url", "http://127.0.0.1:1", "x")
	f(1, "doctor", "--engine-dir", t.TempDir())
	f(2, "nonsense")
	f(2, "help", "nonsense")
	f(2, "help", "up", "--listen")
	f(2, "completion", "tcsh")
	f(2, "top", "--every", "1us")
	f(2, "config", "check", bad)
	f(2, "config", "check", "--config", bad)
	f(2, "config", "print", path, "--config", bad)
	f(2, "encoder", "--config", bad)
	// What the command line names and is not there is a fault of the command line.
	for _, args := range [][]string{
		{"config", "check", gone}, {"config", "print", "--config", gone}, {"keys", "check", gone}, {"keys", "check", bad}, {"simulate", gone}, {"plan", "--ttft", "1s", gone},
		{"bench", "compare", gone, gone}, {"bench", "serve", gone}, {"bench", "decode", "--model", gone}, {"ask", "--image", gone, "x"},
		{"store", "import", gone}, {"store", "export", "--keys", gone, path},
	} {
		f(2, args...)
	}
	for _, role := range []string{"up", "encoder", "prefill", "decode"} {
		f(2, role, "--config", gone)
		f(2, role, "--model", gone)
		f(2, role, "--engine-dir", gone)
		f(2, role, "--engine", "device", "--gpu", "vulkan")
	}
	f(2, "prefill", "--chat-template", gone)
	f(2, "gateway", "--prefill", "http://127.0.0.1:1", "--keys-file", gone)
	f(2, "store", "--config", gone)
	// And so is a value that nothing can be done with.
	for _, command := range []string{"ask", "trace", "top", "drain", "bench serve"} {
		args := append(strings.Fields(command), "--url", "nowhere")
		if command != "top" && command != "bench serve" {
			args = append(args, "x")
		}
		f(2, args...)
	}
	f(2, "ask", "--timeout", "0s", "x")
	f(2, "bench", "relay", "--rounds", "0")
	f(2, "bench", "gateway", "--rounds", "-1")
	f(2, "bench", "gateway", "--during", "1ms")
	f(2, "bench", "resolver", "--copy", "--store", "mooncake")

	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Exit status\n")
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[int]bool{}
	for _, s := range slices.Concat(statusesOf("up"), statusesOf("bench smoke")) {
		told[s.Code] = true
	}
	for code := range 4 {
		if !told[code] || !strings.Contains(section, fmt.Sprintf("| %d |", code)) {
			t.Errorf("status %d is missing in help or in docs/operations.md", code)
		}
	}
}

// What is completed, the configuration takes.
func TestChoicesAreTaken(t *testing.T) {
	for key, words := range keyChoices {
		for _, w := range words {
			l, err := config.Load(config.Input{})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Set(key, w, "test"); err != nil {
				t.Errorf("%s = %s: %v", key, w, err)
			}
			if err := l.Validate(config.All); err != nil && strings.Contains(err.Error(), key+" = ") && strings.Contains(err.Error(), "unknown") {
				t.Errorf("%s = %s: %v", key, w, err)
			}
		}
		l, _ := config.Load(config.Input{})
		if err := l.Set(key, "nonsense", "test"); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if err := l.Validate(config.All); err == nil || !strings.Contains(err.Error(), key+` = "nonsense"`) {
			t.Errorf("%s takes anything, so there is nothing to complete (%v)", key, err)
		}
	}
}

// Pages are written for the program and each command, name their parts, and are read by man's own formatter
// where there is one.
func TestMan(t *testing.T) {
	dir := t.TempDir()
	p := Program{Args: []string{"man", "--out", dir}, Stdout: os.Stdout, Stderr: os.Stderr}
	if status := p.Main(t.Context()); status != exitOK {
		t.Fatalf("status %d", status)
	}
	all := commands()
	for command := range all {
		name := strings.ReplaceAll(strings.TrimSpace("afterimage "+command), " ", "-")
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{".TH \"", ".SH NAME\n" + name + ` \- `, ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXIT STATUS"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "'") {
				t.Errorf("%s: a text is read as a request: %s", name, line)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(pages) != len(all) {
		t.Errorf("%d pages for %d commands (%v)", len(pages), len(all), err)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return // the form is checked above
	}
	out, err := exec.Command(groff, append([]string{"-man", "-Tutf8", "-ww", "-z"}, pages...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}
