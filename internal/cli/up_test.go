// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/model"
	"afterimage/internal/supervise"
)

// argsOf returns the arguments of each process as one line.
func argsOf(specs []supervise.Spec, known supervise.Known) map[string]string {
	out := map[string]string{}
	for _, s := range specs {
		args, _ := s.Command(known)
		out[s.Name] = strings.Join(args, " ")
	}
	return out
}

func TestFleet(t *testing.T) {
	cfg := config.DefaultConfig()
	specs := fleet(cfg, "f.toml", "s.sock")
	first := argsOf(specs, supervise.Known{"encoder-0": {Listen: "h:10"}, "encoder-1": {Listen: "h:11"}, "prefill-0": {Listen: "h:20", Data: "h:21"}})
	want := map[string]string{
		"store":     "store --config f.toml --listen 127.0.0.1:0 --path s.sock",
		"encoder-0": "encoder --config f.toml --listen h:10 --name encoder-0 --store=s.sock",
		"encoder-1": "encoder --config f.toml --listen h:11 --name encoder-1 --store=s.sock",
		"prefill-0": "prefill --config f.toml --listen h:20 --name prefill-0 --store=s.sock --data-listen h:21",
		"gateway":   "gateway --config f.toml --listen 127.0.0.1:8000 --store-socket=s.sock --encoder http://h:10 --encoder http://h:11 --prefill http://h:20",
	}
	if d := cmp.Diff(want, first); d != "" {
		t.Error(d)
	}
	for i, s := range specs[1:] {
		if s.Stage < specs[i].Stage {
			t.Errorf("%s (stage %d) stands before %s (stage %d)", specs[i].Name, specs[i].Stage, s.Name, s.Stage)
		}
	}
	cold := argsOf(specs, supervise.Known{})
	if got := cold["prefill-0"]; !strings.Contains(got, "--listen 127.0.0.1:0") || !strings.Contains(got, "--data-listen 127.0.0.1:0") {
		t.Errorf("first start of prefill-0: %s, want free ports", got)
	}
}

func TestFleetWithoutStore(t *testing.T) {
	cfg := config.DefaultConfig()
	cfg.Store.Kind, cfg.Up.Encoders = config.StoreNone, 3
	got := argsOf(fleet(cfg, "f.toml", "s.sock"), supervise.Known{})
	if _, ok := got["store"]; ok || len(got) != 5 {
		t.Errorf("got %d processes, want 3 Encoders, prefill and gateway", len(got))
	}
	if !strings.HasSuffix(got["encoder-2"], "--store=") {
		t.Errorf("got %q, want an empty --store", got["encoder-2"])
	}
}

// What up passes to its children, their own grammar takes.
func TestFleetArgumentsParse(t *testing.T) {
	for _, s := range fleet(config.DefaultConfig(), "f.toml", "s.sock") {
		args, _ := s.Command(supervise.Known{})
		if _, err := (Program{}).parser().Parse(args); err != nil {
			t.Errorf("%s: %v: %v", s.Name, args, err)
		}
	}
}

// load reads a configuration without flags.
func load(t *testing.T, env ...string) *config.Loaded {
	t.Helper()
	l, err := config.Load(config.Input{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestUpDefaults(t *testing.T) {
	l := load(t, "AFTERIMAGE_ENGINE_KIND=device", "AFTERIMAGE_PREFILL_ARENA_BYTES=2GiB")
	notice, err := upDefaults(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(notice, "modelled") {
		t.Errorf("notice %q does not say that the engine is modelled", notice)
	}
	if l.Encoder.ArenaBytes != upArenaBytes || l.Prefill.ArenaBytes != 2*config.GiB {
		t.Errorf("arenas are %v and %v, want %v and 2GiB", l.Encoder.ArenaBytes, l.Prefill.ArenaBytes, upArenaBytes)
	}
	if time.Duration(l.Server.Drain) != upDrain {
		t.Errorf("drain is %v, want %v", l.Server.Drain, upDrain)
	}
}

// A directory for logs that cannot be is told before any process is begun.
func TestUpLogDir(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "below")} {
		var out, errs strings.Builder
		p := Program{
			Args:   []string{"up", "--engine", "device", "--listen", "127.0.0.1:0", "--log-dir", bad},
			Stdout: &out, Stderr: &errs,
		}
		status := p.Main(t.Context())
		want := fmt.Sprintf("up.log_dir = %q (flag --log-dir): not a directory; give a directory", bad)
		if status != exitUsage || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "waiting") {
			t.Errorf("status %d, want %d with %q\n%s%s", status, exitUsage, want, &out, &errs)
		}
	}
	l := load(t, "AFTERIMAGE_UP_LOG_DIR="+filepath.Join(dir, "a", "b"))
	if err := readyLogDir(l); err != nil {
		t.Errorf("a directory that can be made: %v", err)
	}
	if left, err := os.ReadDir(l.Up.LogDir); err != nil || len(left) > 0 {
		t.Errorf("in it: %v, %v", left, err)
	}
}

func TestUpTakesTheDemo(t *testing.T) {
	cache := t.TempDir()
	if _, err := upDefaults(load(t), []string{cache}); err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Errorf("without a demo: got %v, want the mend", err)
	}
	dir := filepath.Join(cache, demoDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{model.TextFile, model.ProjectorFile} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	role, err := modelOf(config.Model{}, config.EngineLlama, []string{cache})
	if err != nil || role.Path != filepath.Join(dir, model.TextFile) || role.Name != demoName {
		t.Errorf("a role by itself takes %+v (%v), want the demo", role, err)
	}
	named := config.Model{Path: "a", MMProj: "b"}
	if got, err := modelOf(named, config.EngineLlama, nil); err != nil || got != named {
		t.Errorf("got %+v (%v), want what was named", got, err)
	}
	l := load(t)
	notice, err := upDefaults(l, []string{t.TempDir(), cache})
	if err != nil {
		t.Fatal(err)
	}
	if l.Model.Path != filepath.Join(dir, model.TextFile) || l.Model.MMProj != filepath.Join(dir, model.ProjectorFile) {
		t.Errorf("got %q and %q, want the pair in %s", l.Model.Path, l.Model.MMProj, dir)
	}
	if l.Model.ChatTemplate != model.ChatTemplate || role.ChatTemplate != model.ChatTemplate {
		t.Errorf("chat templates %q and %q, want the one that the demo's tower was made with", l.Model.ChatTemplate, role.ChatTemplate)
	}
	if !strings.Contains(notice, "colours, not objects") {
		t.Errorf("notice %q does not say what the demo is", notice)
	}
}

func TestArenasMustFitTogether(t *testing.T) {
	c := config.DefaultConfig()
	if err := checkTotal(&c); err != nil {
		t.Errorf("defaults: %v", err)
	}
	limit, _ := arena.Limit()
	c.Encoder.ArenaBytes = config.Bytes(limit)/2 + 1
	err := checkTotal(&c)
	if err == nil || !strings.Contains(err.Error(), "2 x encoder.arena_bytes") || !strings.Contains(err.Error(), "lower one of them") {
		t.Errorf("two arenas of more than half the memory: got %v", err)
	}
	c.Up.Decodes = 3
	if err := checkTotal(&c); err == nil || !strings.Contains(err.Error(), "3 x decode.arena_bytes") || !strings.Contains(err.Error(), "up.decodes") {
		t.Errorf("with decode workers: got %v", err)
	}
	c.Up.Encoders, c.Up.Decodes = 1, 0
	c.Prefill.ArenaBytes, c.Store.Bytes = config.MiB, config.Bytes(limit)
	c.Store.Kind = config.StoreNone
	if err := checkTotal(&c); err != nil {
		t.Errorf("a Store that is off counts: %v", err)
	}
}

func TestAnnounce(t *testing.T) {
	f := func(model, address, curl, ask, question string) {
		t.Helper()
		var b strings.Builder
		table := []supervise.Status{{Name: "store", State: supervise.Ready}, {Name: "encoder-0", Engine: "gpu"}, {Name: "prefill-0", Model: model, Engine: "gpu, 3 of 3 layers (why)"}, {Name: "gateway", State: supervise.Ready, Address: address}}
		if err := announce(&b, "bin/afterimage", table, "Model: x", "--path /run/x/store.sock"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Model: x", "\nEngine: gpu, 3 of 3 layers (why)\n", curl, ask, question, "bin/afterimage store ls --path /run/x/store.sock\n"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: %q is missing in:\n%s", address, want, b.String())
			}
		}
		if !strings.HasSuffix(b.String(), "\n"+readyLine+"\n") {
			t.Errorf("the last line is not %q:\n%s", readyLine, b.String())
		}
	}
	f(demoName, "127.0.0.1:8000", "curl -s http://127.0.0.1:8000/v1/chat", "  bin/afterimage ask --image", `"Name the colors of`)
	f("qwen", "0.0.0.0:9000", "curl -s http://127.0.0.1:9000/v1/chat", "  bin/afterimage ask --url http://127.0.0.1:9000 --image", `"What is in this`)
}

// TestReasonIsToldOnce: what the error tells is not told in the table, too; what it does not tell is.
func TestReasonIsToldOnce(t *testing.T) {
	table := withoutTold([]supervise.Status{
		{Name: "encoder-0", State: supervise.Failed, Reason: "no such projector"},
		{Name: "prefill-0", State: supervise.Failed, Reason: "no such text model"},
		{Name: "gateway", State: supervise.Waiting},
	}, errors.New("prefill-0: no such text model"))
	var got []string
	for _, st := range table {
		got = append(got, st.Reason)
	}
	if want := []string{"no such projector", "see below", ""}; !slices.Equal(got, want) {
		t.Errorf("reasons %q, want %q", got, want)
	}
}
