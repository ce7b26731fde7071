// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"afterimage/internal/config"
	"afterimage/internal/ports"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/supervise"
)

// programs makes a folder that looks like Mooncake's.
func programs(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{masterProgram, clientProgram} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindMooncake(t *testing.T) {
	empty, cache := t.TempDir(), t.TempDir()
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	programs(t, filepath.Join(cache, "mooncake", "0.1-"+machine))
	newest := programs(t, filepath.Join(cache, "mooncake", "0.3-"+machine))
	programs(t, filepath.Join(cache, "mooncake", "0.4-other"))
	if dir, err := findMooncake("", []string{empty, cache}); err != nil || dir != newest {
		t.Errorf("got %q (%v), want %q", dir, err, newest)
	}
	named := programs(t, t.TempDir())
	if dir, err := findMooncake(named, []string{cache}); err != nil || dir != named {
		t.Errorf("got %q (%v), want what was named", dir, err)
	}
	f := func(named string, caches []string, wants ...string) {
		t.Helper()
		_, err := findMooncake(named, caches)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
	}
	f("", []string{empty}, "make deps-mooncake", "mooncake.dir", empty)
	f(empty, []string{cache}, "mooncake.dir "+empty, "make deps-mooncake")
}

func TestFleetWithMooncake(t *testing.T) {
	l := load(t, "AFTERIMAGE_ENGINE_KIND=device", "AFTERIMAGE_STORE_KIND=mooncake", "AFTERIMAGE_MOONCAKE_DIR="+programs(t, t.TempDir()))
	if _, err := upDefaults(l, nil); err != nil {
		t.Fatal(err)
	}
	specs, err := upMooncake(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	specs = append(specs, fleet(l.Config, "f.toml", "s.sock")...)
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
	}
	want := []string{masterName, clientName, "encoder-0", "encoder-1", "prefill-0", "gateway"}
	if d := cmp.Diff(want, names); d != "" {
		t.Fatal(d)
	}
	if !slices.IsSortedFunc(specs, func(a, b supervise.Spec) int { return a.Stage - b.Stage }) || specs[0].Stage == specs[1].Stage {
		t.Error("the processes are not in the order of their start, the master by itself")
	}
	if l.Store.Bytes != upMooncakeBytes || l.Mooncake.Client != specs[1].Address {
		t.Errorf("Encoders look for %s with %v, want %s with %v", l.Mooncake.Client, l.Store.Bytes, specs[1].Address, upMooncakeBytes)
	}
	args := argsOf(specs, supervise.Known{})
	if !strings.Contains(args[clientName], "--master_server_address="+specs[0].Address+" ") || !strings.Contains(args[clientName], "--global_segment_size=268435456 ") {
		t.Errorf("mooncake_client is told %s", args[clientName])
	}
	if !strings.HasSuffix(args["encoder-0"], "--store=") {
		t.Errorf("an Encoder is told %s, want no socket", args["encoder-0"])
	}
}

func TestUpNamesWhatMooncakeLacks(t *testing.T) {
	_, err := upMooncake(load(t, "AFTERIMAGE_STORE_KIND=mooncake"), []string{t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "make deps-mooncake") {
		t.Errorf("got %v, want the mend", err)
	}
}

func TestALostStoreMakesUnready(t *testing.T) {
	var r readiness
	if err := r.err(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	var lost error
	r.store = func() error { return lost }
	if err := r.err(); err != nil {
		t.Errorf("with its Store: %v", err)
	}
	if lost = errors.New("memory is in doubt"); r.err() != lost {
		t.Errorf("got %v, want the Store's reason", r.err())
	}
}

// doctor runs the command in an environment and returns its output and status.
func doctor(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	var out, errs strings.Builder
	status := Program{Args: append([]string{"doctor"}, args...), Env: env, Stdout: &out, Stderr: &errs}.Main(t.Context())
	if errs.Len() > 0 {
		t.Errorf("doctor %q writes to standard error: %s", args, errs.String())
	}
	return out.String(), status
}

func TestDoctorLooksForMooncake(t *testing.T) {
	at, err := ports.Address()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mooncake.json")
	if err := os.WriteFile(file, []byte(`{"master_server_address": "m:1", "protocol": "tcp", "color": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, status := doctor(t, []string{config.MooncakeEnv + "=" + file}, "--store", "mooncake", "--mooncake-client", at)
	for _, want := range []string{"warn  MOONCAKE_CONFIG_PATH", "nothing reads color", "ok    MOONCAKE_CONFIG_PATH", "master m:1",
		"fail  mooncake_client", "nobody listens at " + at, "-> start it: "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	if status != exitFailure {
		t.Errorf("status %d, want %d", status, exitFailure)
	}
	if err := os.WriteFile(file, []byte(`{"protocol": "tcp"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = doctor(t, []string{config.MooncakeEnv + "=" + file}, "--store", "mooncake", "--mooncake-client", at)
	if !strings.Contains(out, "warn  MOONCAKE_CONFIG_PATH  MOONCAKE_CONFIG_PATH: the file names no master_server_address") {
		t.Errorf("a file without a master:\n%s", out)
	}
}

func TestDoctorLooksAtThisHost(t *testing.T) {
	env := []string{"AFTERIMAGE_ENGINE_KIND=device", "AFTERIMAGE_GATEWAY_LISTEN=127.0.0.1:0"}
	out, status := doctor(t, env)
	if want := "ok    golden vectors  "; status != exitOK || !strings.HasPrefix(out, want) || !strings.Contains(out, "ok    port") {
		t.Errorf("status %d, output\n%s", status, out)
	}
	out, status = doctor(t, append(env, "AFTERIMAGE_MODEL_PATH=/does/not/exist"), "--json")
	if status != exitFailure || !strings.Contains(out, `"level":"fail","part":"configuration"`) || !strings.Contains(out, "model.path") {
		t.Errorf("status %d, output\n%s", status, out)
	}
	bad := filepath.Join(t.TempDir(), "bad.gguf")
	if err := os.WriteFile(bad, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := checkModels(config.Model{Path: bad, MMProj: bad}, nil)
	if len(found) != 2 || found[0].Level != mooncake.Fail || !strings.Contains(found[1].Text, "GGUF") {
		t.Errorf("a file that is no model: %+v", found)
	}
}

func TestFindingsAreAligned(t *testing.T) {
	var b strings.Builder
	err := writeFindings(&b, []finding{{Level: "ok", Part: "a", Text: "fine"}, {Level: "fail", Part: "long", Text: "one\ntwo", Mend: "mend it"}})
	want := "ok    a     fine\nfail  long  one\n            two\n            -> mend it\n"
	if got := b.String(); err != nil || got != want {
		t.Errorf("got %v,\n%s, want\n%s", err, got, want)
	}
}

// What makes a worker use Mooncake shows in its refusal of an address that only Mooncake's clients have.
func TestWorkersChooseTheirStore(t *testing.T) {
	file := config.MooncakeEnv + "=/does/not/exist.json"
	for _, c := range []struct {
		env   []string
		args  []string
		joins bool
	}{
		{nil, []string{"--store", "mooncake"}, true},
		{nil, []string{"--store-kind", "mooncake"}, true},
		{[]string{file}, nil, true},
		{[]string{file}, []string{"--store", "none"}, false},
		{[]string{file}, []string{"--store", "some.sock"}, false},
		{[]string{file, "AFTERIMAGE_STORE_KIND=ram"}, nil, false},
		{nil, nil, false},
	} {
		for _, role := range []string{"encoder", "prefill"} {
			var errs strings.Builder
			args := append([]string{role, "--engine", "device", "--mooncake-client", "nowhere", "--arena-bytes", "1KiB"}, c.args...)
			status := Program{Args: args, Env: c.env, Stderr: &errs}.Main(t.Context())
			if status != exitUsage || strings.Contains(errs.String(), "mooncake.client") != c.joins {
				t.Errorf("%s %q with %q: status %d, %s, want a word about mooncake.client: %v", role, c.args, c.env, status, errs.String(), c.joins)
			}
		}
	}
}

func TestMooncakeServerFollowsTheFile(t *testing.T) {
	file, err := config.ParseMooncakeFile([]byte(`{"master_server_address":"127.0.0.1:50051","protocol":"rdma","device_name":"mlx5_0",
		"mode":"standalone-store","global_segment_size":0,"tenant_id":"acme"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	address, server := mooncakeServer("127.0.0.1:50052", file)
	want := "MC_TCP_ENABLE_CONNECTION_POOL=1 MC_TCP_PROGRESS_TIMEOUT_SEC=5 MC_TCP_STATUS_TIMEOUT_SEC=5 MC_RPC_TIMEOUT_MS=2000 mooncake_client " +
		"--protocol=rdma --host=127.0.0.1 --port=50052 --master_server_address=127.0.0.1:50051 --metadata_server=P2PHANDSHAKE " +
		"--global_segment_size=0 --threads=16 --minloglevel=1 --device_names=mlx5_0 --tenant_id=acme"
	if got := server.Command(); got != want || address != "127.0.0.1:50052" {
		t.Errorf("at %s by\n%s, want\n%s", address, got, want)
	}
	file.MetadataServer = "etcd://a:2379;b's:2379"
	if _, server = mooncakeServer("127.0.0.1:50052", file); !strings.Contains(server.Command(), `'--metadata_server=etcd://a:2379;b'\''s:2379'`) {
		t.Errorf("not for a shell: %s", server.Command())
	}
	// A host of its own is taken as it is; a name that leads nowhere changes nothing.
	file.MasterServerAddress = "no.such.host.invalid:50051"
	for _, client := range []string{"10.1.2.3:50052", "127.0.0.1:50052"} {
		if address, _ := mooncakeServer(client, file); address != client {
			t.Errorf("%s became %s", client, address)
		}
	}
	if _, server := mooncakeServer("127.0.0.1:7", config.MooncakeFile{}); !strings.Contains(server.Command(), "--host=HOST --port=7 --master_server_address=MASTER:50051") {
		t.Errorf("without a file: %s", server.Command())
	}
}
