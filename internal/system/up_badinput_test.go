// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"afterimage/internal/model"
)

// bad is a command line that cannot work. want are words that its message must have: what is wrong,
// with its value, and what to do.
type bad struct {
	name   string
	args   []string
	status int // 0 stands for 1, a failure; 2 is usage or configuration
	want   []string
}

// refuses launches up, which must end by itself with a message, and leave nothing.
func (b bad) refuses(t *testing.T) {
	u := launch(t, b.args...)
	select {
	case <-u.exited:
	case <-time.After(10 * time.Second):
		t.Fatal("up runs on")
	}
	if got := u.cmd.ProcessState.ExitCode(); got != max(1, b.status) {
		t.Errorf("exit status %d, want %d", got, max(1, b.status))
	}
	message := u.errs.String()
	at := strings.Index(message, "afterimage: error: ")
	if at < 0 || strings.Count(message, "afterimage: error: ") != 1 {
		t.Fatalf("want one message, got:\n%s", message)
	}
	for _, want := range b.want {
		if !strings.Contains(message[at:], want) {
			t.Errorf("the message lacks %q:\n%s", want, message[at:])
		}
	}
	for _, trace := range []string{"goroutine ", "panic:", "BUG", "%!"} {
		if strings.Contains(message, trace) {
			t.Errorf("the message has %q:\n%s", trace, message)
		}
	}
	if strings.Contains(u.out.String(), "ready") {
		t.Errorf("it prints a table as if it had started:\n%s", u.out.String())
	}
	u.gone(t, 0)
}

func runBad(t *testing.T, all []bad) {
	t.Helper()
	for _, b := range all {
		t.Run(b.name, b.refuses)
	}
}

// write puts a file into a folder of the test.
func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBadCommandLine (G01): faults of flags and configuration, found before anything starts.
func TestBadCommandLine(t *testing.T) {
	text, projector := write(t, "text.gguf", nil), write(t, "mmproj.gguf", nil)
	models := []string{"--model", text, "--mmproj", projector}
	with := func(args ...string) []string { return append(args, models...) }
	file := func(toml string) string { return write(t, "afterimage.toml", []byte(toml)) }
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	typo, broken, role := file("[gateway]\nlistn = \":1\"\n"), file("[gateway\n"), file("[up]\nrole = \"both\"\n")
	runBad(t, []bad{
		{"wrong flag", with("--encoder-arena-byte", "1GiB"), 2, []string{"unknown flag --encoder-arena-byte", "did you mean", "--help"}},
		{"flag without its value", with("--listen"), 2, []string{"--listen", "--help"}},
		{"unknown argument", with("encoder"), 2, []string{"unexpected argument encoder"}},
		{"missing text model", []string{"--model", "nowhere.gguf", "--mmproj", projector}, 2,
			[]string{`model.path = "nowhere.gguf" (flag --model): no such file; give`}},
		{"missing projector", []string{"--model", text, "--mmproj", "nowhere.gguf"}, 2,
			[]string{`model.mmproj = "nowhere.gguf" (flag --mmproj): no such file; give`}},
		{"no projector named", []string{"--model", text}, 2, []string{"model.mmproj", "missing; name the projector"}},
		{"no text model named", []string{"--mmproj", projector}, 2, []string{"model.path", "missing", projector, "name the text model"}},
		{"directory for a model", []string{"--model", t.TempDir(), "--mmproj", projector}, 2, []string{"model.path", "--model", "not a file; give"}},
		{"port in use", with("--listen", taken.Addr().String()), 1, []string{"gateway.listen", taken.Addr().String(), "in use; stop what listens there", "--listen"}},
		{"no address", with("--listen", "somewhere"), 2, []string{`gateway.listen = "somewhere" (flag --listen)`, "HOST:PORT"}},
		{"no configuration", with("--config", "nowhere.toml"), 2, []string{"--config nowhere.toml: no such file; give"}},
		{"directory for a configuration", with("--config", t.TempDir()), 2, []string{"--config", "not a TOML file; give"}},
		{"unreadable configuration", with("--config", "/proc/self/mem"), 2, []string{"--config /proc/self/mem: ", "give a file"}},
		{"unknown key", with("--config", typo), 2, []string{typo + ":2:1: unknown key gateway.listn; did you mean gateway.listen?"}},
		{"no TOML", with("--config", broken), 2, []string{broken + ":1:"}},
		{"role both", with("--config", role), 2, []string{"unknown key up.role"}},
		{"unknown Store", with("--store-kind", "redis"), 2, []string{`store.kind = "redis" (flag --store-kind): unknown; use ram or mooncake or none`}},
		{"unknown engine", with("--engine", "gpu"), 2, []string{`engine.kind = "gpu" (flag --engine): unknown; use llama or device`}},
		{"no Encoders", with("--encoders", "0"), 2, []string{`up.encoders = "0" (flag --encoders): too small; give at least 1`}},
		{"fewer than no Encoders", with("--encoders", "-1"), 2, []string{`up.encoders = "-1"`, "too small"}},
		{"Encoders by name", with("--encoders", "two"), 2, []string{"--encoders", `"two"`}},
	})
}

// TestBadArenaSizes (G01) gives every arena sizes that it cannot have.
func TestBadArenaSizes(t *testing.T) {
	text, projector := write(t, "text.gguf", nil), write(t, "mmproj.gguf", nil)
	models := []string{"--model", text, "--mmproj", projector}
	for key, flag := range map[string]string{
		"encoder.arena_bytes": "--encoder-arena-bytes", "prefill.arena_bytes": "--prefill-arena-bytes", "store.bytes": "--store-bytes",
	} {
		with := func(value string) []string { return append([]string{flag, value}, models...) }
		named := func(value string) string { return fmt.Sprintf("%s = %q (flag %s): ", key, value, flag) }
		runBad(t, []bad{
			{flag + " 0", with("0"), 2, []string{named("0"), "too small; give at least 1MiB"}},
			{flag + " -1", with("-1"), 2, []string{flag, `"-1" is no size; write`}},
			{flag + " above RAM", with("900TiB"), 2, []string{named("900TiB"), "more than the memory", "lower it"}},
			{flag + " above all", with("99999999999GiB"), 2, []string{flag, "larger than any memory"}},
		})
	}
}

// TestBadModelFiles gives up files that are not what they should be.
func TestBadModelFiles(t *testing.T) {
	flags := pair(t, model.MLP)
	text, projector := flags[1], flags[3]
	var all []bad
	add := func(name, text, projector string, want ...string) {
		all = append(all, bad{name: name, args: []string{"--model", text, "--mmproj", projector}, want: want})
	}
	add("swapped", projector, text, projector, "is a projector", "--model and --mmproj swapped?")
	add("a projector twice", projector, projector, projector, "is a projector")
	add("a text model twice", text, text, text, "--mmproj")
	for _, n := range []int64{0, 3, 10, 1000, 20_000, 300_000} {
		cut := func(file string) string {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return write(t, filepath.Base(file), b[:n])
		}
		cutText, cutProjector := cut(text), cut(projector)
		add(fmt.Sprintf("text model of %d bytes", n), cutText, projector, "text model", cutText, "truncated file", "get the file again")
		add(fmt.Sprintf("projector of %d bytes", n), text, cutProjector, "projector", cutProjector, "truncated file", "get the file again")
	}
	other := write(t, "song.gguf", []byte("ID3 this is a song, and not short enough to end in the header"))
	add("no GGUF for a text model", other, projector, other, "not a GGUF file")
	add("no GGUF for a projector", text, other, other, "not a GGUF file")
	wide := t.TempDir()
	if err := model.WriteRandom(wide, model.RandomOptions{Projector: model.MLP, Size: model.Small, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	add("projector of another width", text, filepath.Join(wide, model.ProjectorFile), "mmproj.gguf", "64", "256", "made for the model of --model?")
	runBad(t, all)
}

// TestBadEngineFolder points up at folders without the libraries, and with wrong ones.
func TestBadEngineFolder(t *testing.T) {
	flags := pair(t, model.MLP)
	empty, wrong := t.TempDir(), t.TempDir()
	for _, name := range []string{"libllama.so.0", "libmtmd.so.0", "libggml-cpu.so", "libggml-base.so.0", "libggml.so.0"} {
		if err := os.WriteFile(filepath.Join(wrong, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	none := filepath.Join(empty, "none")
	with := func(dir string) []string { return append([]string{"--engine-dir", dir}, flags...) }
	runBad(t, []bad{
		{name: "no folder", args: with(none), status: 2, want: []string{none, "--engine-dir", "no such folder", "make deps"}},
		{name: "no libraries", args: with(empty), want: []string{empty, "holds no libllama.so.0", "make deps"}},
		{name: "empty library", args: with(wrong), want: []string{filepath.Join(wrong, "libllama.so.0"), "make deps"}},
	})
}

// TestUnknownCommand misspells a command.
func TestUnknownCommand(t *testing.T) {
	stdout, stderr, status := run(t, "prefil")
	if status != 2 || stdout != "" || !strings.Contains(stderr, `did you mean "prefill"?`) {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}
