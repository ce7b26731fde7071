// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// write makes a file of a test.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultsAreValid(t *testing.T) {
	for _, role := range []Role{RoleUp, RoleStore, RoleEncoder, RolePrefill} {
		l, err := Load(Input{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Validate(role); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
}

// The tags of the struct say each key three times; they must agree.
func TestTags(t *testing.T) {
	flags := map[string]string{}
	for table := range reflect.TypeFor[Config]().Fields() {
		for f := range table.Type.Fields() {
			want := table.Tag.Get("toml") + "." + f.Tag.Get("toml")
			if got := f.Tag.Get("key"); got != want {
				t.Errorf("%s.%s: key tag %q, want %q", table.Name, f.Name, got, want)
			}
			if h := f.Tag.Get("help"); !strings.HasSuffix(h, ".") {
				t.Errorf("%s: help %q is no sentence", want, h)
			}
			if flag := f.Tag.Get("name"); flag != "" && flags[flag] != "" {
				t.Errorf("%s and %s share the flag --%s", want, flags[flag], flag)
			} else if flag != "" {
				flags[flag] = want
			}
		}
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "store.path = '/a'\nserver = {drain = '3s'}\n[engine]\nthreads = 2\nslots = 2\ncontext = 2\n[log]\nlevel = 'debug'\n")
	l, err := Load(Input{
		File:  file,
		Env:   []string{"AFTERIMAGE_ENGINE_THREADS=3", "AFTERIMAGE_ENGINE_SLOTS=3", "HOME=/"},
		Flags: map[string]Flag{"engine.threads": {Name: "--threads", Value: 4}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := func(key, value, source string) {
		t.Helper()
		k, _ := keyNamed(key)
		if got := k.Text(&l.Config); got != value || l.Source(key) != source {
			t.Errorf("%s: got %q from %q, want %q from %q", key, got, l.Source(key), value, source)
		}
	}
	f("engine.threads", "4", "flag --threads")
	f("engine.slots", "3", "env AFTERIMAGE_ENGINE_SLOTS")
	f("engine.context", "2", "file "+file+":6")
	f("log.level", "debug", "file "+file+":8")
	f("store.path", "/a", "file "+file+":1")
	f("server.drain", "3s", "file "+file+":2")
	f("log.format", "text", "default")
}

func TestFileValues(t *testing.T) {
	l, err := Load(Input{File: write(t, `
[encoder]
arena_bytes = "512MiB"
cache_bytes = 4096
cross_encoder_cache = false
[gateway]
encoders = ["http://a:1", "http://b:2"]
fetch_timeout = "1m30s"
drain_notice = 0
[vllm]
probe_interval = 7
probe_timeout = 0.5
`)})
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Encoder.ArenaBytes, want.Encoder.CacheBytes, want.Encoder.CrossEncoderCache = 512*MiB, 4096, false
	want.Gateway.Encoders = []string{"http://a:1", "http://b:2"}
	want.Gateway.FetchTimeout, want.Gateway.DrainNotice = Duration(90*time.Second), 0
	want.VLLM.ProbeInterval, want.VLLM.ProbeTimeout = Seconds(7*time.Second), Seconds(time.Second/2)
	if d := cmp.Diff(want, l.Config); d != "" {
		t.Error(d)
	}
}

// A byte order mark before the text is no part of it, and does not move the places that errors name.
func TestFileWithByteOrderMark(t *testing.T) {
	file := write(t, "\uFEFF[gateway]\nmax_images = 3\n")
	l, err := Load(Input{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if l.Gateway.MaxImages != 3 || l.Source("gateway.max_images") != "file "+file+":2" {
		t.Errorf("got %d from %s", l.Gateway.MaxImages, l.Source("gateway.max_images"))
	}
	_, err = Load(Input{File: write(t, "\uFEFF[gatway]\n")})
	check(t, err, "a.toml:1:2", "did you mean gateway?")
}

func TestEnvValues(t *testing.T) {
	l, err := Load(Input{Env: []string{
		"AFTERIMAGE_GATEWAY_ENCODERS=http://a:1, http://b:2,",
		"AFTERIMAGE_GATEWAY_ALLOW_PRIVATE_URLS=true",
		"AFTERIMAGE_STORE_BYTES=3GiB",
		"AFTERIMAGE_SERVER_DRAIN=5s",
		"AFTERIMAGE_MODEL_NAME=a=b",
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Gateway.Encoders = []string{"http://a:1", "http://b:2"}
	want.Gateway.AllowPrivateURLs = true
	want.Store.Bytes = 3 * GiB
	want.Server.Drain = Duration(5 * time.Second)
	want.Model.Name = "a=b"
	if d := cmp.Diff(want, l.Config); d != "" {
		t.Error(d)
	}
}

func TestUnreadEnv(t *testing.T) {
	l, err := Load(Input{Env: []string{"AFTERIMAGE_GATEWAY_LISTN=x", "AFTERIMAGE_STORE_BYTES=1GiB", "AFTERIMAGE_CONFIG=f", "OTHER=1", "AFTERIMAGE_Q=1"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"AFTERIMAGE_GATEWAY_LISTN; did you mean AFTERIMAGE_GATEWAY_LISTEN?", "AFTERIMAGE_Q"}
	if d := cmp.Diff(want, l.Unread); d != "" {
		t.Error(d)
	}
}

func TestLoadErrors(t *testing.T) {
	file := func(text string, wants ...string) {
		t.Helper()
		_, err := Load(Input{File: write(t, text)})
		check(t, err, wants...)
	}
	file("[gateway]\nmax_image = 3\n", "a.toml:2:1", "unknown key gateway.max_image", "did you mean gateway.max_images?")
	file("[gatway]\nlisten = 'x:1'\n", "a.toml:1:2", "gatway", "did you mean gateway?")
	file("[gateway]\narena_bytes = 1\n", "did you mean encoder.arena_bytes?")
	file("threads = 1\n", "did you mean engine.threads?")
	file("[gateway]\nqqq = 1\n", "see 'afterimage config print'")
	file("[encoder]\nlora = true\n", "unknown key encoder.lora; see 'afterimage config print'") // not encoder.store
	file("[gateway]\nmax_images = 'many'\n", "a.toml:2:14", "gateway.max_images = 'many': write a whole number, without quotes")
	file("[gateway]\nlisten = 8000\n", "a.toml:2:10", "gateway.listen = 8000: write text, in quotes")
	file("[gateway]\nfetch_ports = [8080]\n", "a.toml:2", `gateway.fetch_ports = [8080]: write a list of texts, e.g. ["a", "b"]`)
	file("[gateway]\napi_keys = 12345\n", "a.toml:2:12: gateway.api_keys: write a list of texts")
	file("[store]\nbytes = '12 parsecs'\n", "a.toml:2", "store.bytes", "unknown unit", "GiB")
	file("[server]\ndrain = 'soon'\n", "a.toml:2", "server.drain", "500ms")
	file("[gateway\n", "a.toml:1")
	file("[encoder]\ncross_encoder_cache = 1\n", "a.toml:2", "cross_encoder_cache must be a boolean")
	file("[encoder]\ncross_encoder_cache = 'true'\n", "a.toml:2", "cross_encoder_cache must be a boolean")
	file("[encoder]\nstore_max_pending_items = true\n", "a.toml:2", "encoder.store_max_pending_items")
	file("[encoder]\nstore_max_pending_items = 3.0\n", "a.toml:2", "encoder.store_max_pending_items")
	file("[encoder]\nmm_processor_cache_gb = true\n", "a.toml:2", "encoder.mm_processor_cache_gb")
	file("[encoder]\nstore_max_pending_bytes = true\n", "a.toml:2", "encoder.store_max_pending_bytes")
	file("[log]\nlevel = 'info'\n[store]\n  bytes = false\n", "a.toml:4:3: store.bytes: ", "512MiB")
	file("\nstore.bytes = true\n", "a.toml:2:1: store.bytes: ", "512MiB")
	file("store = { path = 'x', bytes = 1.5 }\n", "a.toml:1:23: store.bytes: ", "512MiB")
	file("['store']\n\"bytes\" = inf # much\n", "a.toml:2:1: store.bytes: ", "512MiB")
	file("[server]\ndrain = true\n", "a.toml:2:1: server.drain: ", "500ms")
	file("[server]\ndrain = 5\n", "a.toml:2:1: server.drain: ", `"5" is no time`, "500ms")
	file("[encoder]\ncross_encoder_cache = []\n", "a.toml:2:23: ", "must be a boolean; write true or false, without quotes")
	file("[store]\nbytes = [1]\n", `a.toml:2:9: store.bytes = [1]: write a size in quotes, e.g. "512MiB"`)
	file("[store]\nttl = {a = 1}\n", `a.toml:2:7: store.ttl = {a = 1}: write a time in quotes, e.g. "30s"`)
	file("[vllm]\nprobe_interval = 1979-05-27\n", "a.toml:2:18: vllm.probe_interval = 1979-05-27: write seconds, or a time in quotes")
	file("[encoder]\nmm_processor_cache_gb = 'x'\n", "a.toml:2:25: encoder.mm_processor_cache_gb = 'x': write a number, without quotes")
	file("[gateway]\nmax_images = 99999999999999999999\n", "gateway.max_images: ", "too large", "; write a whole number")
	file("gateway = 3\n", "a.toml:1:11: gateway is a table: write [gateway] on a line of its own")
	file("[[gateway]]\nlisten = 'x'\n", "a.toml:1:3: gateway is a table: write [gateway]")
	file("[gateway.listen]\nx = 1\n", "a.toml:1:2: gateway.listen: write text, in quotes")
	file("gateway.listen.x = 1\n", "a.toml:1:16: gateway.listen: write text, in quotes")
	file("gateway = { repairs = 2, listen = 3 }\n", "a.toml:1:35: gateway.listen: write text, in quotes")
	env := func(kv string, wants ...string) {
		t.Helper()
		_, err := Load(Input{Env: []string{kv}})
		check(t, err, wants...)
	}
	env("AFTERIMAGE_ENGINE_THREADS=two", "AFTERIMAGE_ENGINE_THREADS", `"two" is no whole number`)
	env("AFTERIMAGE_GATEWAY_ALLOW_PRIVATE_URLS=maybe", "neither true nor false")
	env("AFTERIMAGE_STORE_BYTES=-1", "is no size")
	_, err := Load(Input{File: "/does/not/exist.toml"})
	check(t, err, "--config /does/not/exist.toml", "no such file", "TOML")
	_, err = Load(Input{File: t.TempDir()})
	check(t, err, "not a TOML file")
	_, err = Load(Input{Flags: map[string]Flag{"no.key": {Name: "--no"}}})
	check(t, err, "--no")
}

// No value of a file is so wrong that the error speaks of this program's types instead of what to write.
func TestFileErrorsAreForPeople(t *testing.T) {
	for _, k := range Keys() {
		table, name, _ := strings.Cut(k.Name, ".")
		for _, value := range []string{"3", "-1.5", "nan", "true", "'x'", "[1]", "[['a']]", "{a = 1}", "1979-05-27", "99999999999999999999", "07:32:00"} {
			_, err := Load(Input{File: write(t, "["+table+"]\n"+name+" = "+value+"\n")})
			if err == nil {
				continue // it is right
			}
			if text := err.Error(); strings.Contains(text, "config.") || strings.Contains(text, "struct") || !strings.Contains(text, k.Name) || !strings.Contains(text, "write ") {
				t.Errorf("%s = %s: %s", k.Name, value, text)
			}
		}
	}
}

// check wants an error that contains all of wants.
func check(t *testing.T, err error, wants ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("got no error, want one with %q", wants)
		return
	}
	for _, w := range wants {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got error %q, want it to contain %q", err, w)
		}
	}
}

func TestShowIsAFile(t *testing.T) {
	l, err := Load(Input{Env: []string{"AFTERIMAGE_GATEWAY_PREFILLS=http://a:1,http://b:2", `AFTERIMAGE_MODEL_NAME=a"b`}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := l.Show(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[gateway]", "# env AFTERIMAGE_GATEWAY_PREFILLS", "# default"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
	again, err := Load(Input{File: write(t, b.String())})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(l.Config, again.Config, emptyList); d != "" {
		t.Error(d)
	}
}

func TestWriteTOML(t *testing.T) {
	want := DefaultConfig()
	want.Gateway.Encoders = []string{"http://a:1"}
	want.Store.Bytes = 12345
	text, err := WriteTOML(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(Input{File: write(t, string(text))})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got.Config, emptyList); d != "" {
		t.Error(d)
	}
}

// emptyList makes an empty list equal to none.
var emptyList = cmp.FilterValues(func(a, b []string) bool { return len(a)+len(b) == 0 }, cmp.Ignore())

func TestSet(t *testing.T) {
	l, err := Load(Input{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Set("store.path", "/x", "up"); err != nil || l.Config.Store.Path != "/x" || l.Source("store.path") != "up" {
		t.Errorf("got %q from %q (%v), want /x from up", l.Config.Store.Path, l.Source("store.path"), err)
	}
	if err := l.Set("store.pat", "/x", "up"); err == nil {
		t.Error("a key that is not there could be set")
	}
}
