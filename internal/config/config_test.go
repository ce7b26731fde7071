// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
	file := write(t, "[engine]\nthreads = 2\nslots = 2\ncontext = 2\n[log]\nlevel = 'debug'\n")
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
	f("engine.context", "2", "file "+file)
	f("log.level", "debug", "file "+file)
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
`)})
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig()
	want.Encoder.ArenaBytes, want.Encoder.CacheBytes, want.Encoder.CrossEncoderCache = 512*MiB, 4096, false
	want.Gateway.Encoders = []string{"http://a:1", "http://b:2"}
	want.Gateway.FetchTimeout = Duration(90 * time.Second)
	if d := cmp.Diff(want, l.Config); d != "" {
		t.Error(d)
	}
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

func TestValidate(t *testing.T) {
	there := write(t, "")
	f := func(role Role, key, value string, wants ...string) {
		t.Helper()
		l, err := Load(Input{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Set(key, value, "flag --x"); err != nil {
			t.Fatal(err)
		}
		err = l.Validate(role)
		if len(wants) == 0 {
			if err != nil {
				t.Errorf("%s = %q for %s: %v", key, value, role, err)
			}
			return
		}
		check(t, err, append(wants, key, value, "(flag --x)")...)
		if p, ok := errors.AsType[*Problem](err); !ok || p.Value != value {
			t.Errorf("%s: got %#v, want a Problem with value %q", key, err, value)
		}
	}
	f(RoleUp, "log.level", "loud", "debug or info or warn or error")
	f(RoleUp, "engine.kind", "gpu", "llama or device")
	f(RoleUp, "engine.threads", "0", "at least 1")
	f(RoleUp, "engine.threads", "100000", "at most 512")
	f(RoleStore, "engine.threads", "0")
	f(RoleUp, "up.encoders", "0", "at least 1")
	f(RoleUp, "gateway.listen", "8000", "HOST:PORT")
	f(RoleUp, "gateway.listen", "127.0.0.1:99999", "0 (any free one) to 65535")
	f(RoleUp, "gateway.listen", ":0")
	f(RoleUp, "gateway.encoders", "http://a:1", "afterimage gateway")
	f(RoleGateway, "gateway.prefills", "a:1", "http://HOST:PORT")
	f(RoleGateway, "gateway.prefills", "http://a:1")
	f(RoleGateway, "gateway.prefills", "", "at least one worker")
	f(RoleUp, "encoder.cache_bytes", "2GiB", "larger than encoder.arena_bytes", "1GiB")
	f(RoleUp, "encoder.arena_bytes", "1KiB", "at least 1MiB")
	f(RoleStore, "store.path", strings.Repeat("x", 108), "at most 107 bytes")
	f(RoleUp, "store.kind", "redis", "ram or mooncake or none")
	f(RoleEncoder, "store.kind", "redis", "ram or mooncake or none")
	f(RoleStore, "store.kind", "mooncake", "mooncake_master", "set it to ram")
	f(RoleEncoder, "mooncake.client", "nonsense") // of no interest to a ram Store
	f(RoleStore, "store.kind", "none", "turned off")
	f(RoleEncoder, "store.ttl", "1ms", "at least 1s")
	f(RoleEncoder, "store.ttl", "-1h", "at least 1s")
	f(RoleUp, "store.ttl", "24h")
	f(RoleStore, "store.tenant_quota_bytes", "2GiB", "more than store.bytes (1GiB)")
	f(RoleUp, "store.tenant_quota_bytes", "1GiB")
	f(RolePrefill, "prefill.item_timeout", "1ms", "at least 1s")
	f(RolePrefill, "prefill.data_listen", "0.0.0.0:8201", "Encoders can reach")
	f(RolePrefill, "prefill.data_listen", "[::]:8201", "Encoders can reach")
	f(RolePrefill, "prefill.data_listen", ":8201", "Encoders can reach")
	f(RolePrefill, "prefill.data_listen", "worker.example:8201")
	f(RoleEncoder, "transport.tls_cert", "/does/not/exist.pem", "no such file", "transport.tls_key", "or none of them")
	f(RolePrefill, "transport.tls_name", "workers", "no TLS")
	f(RoleDecode, "fleet.token_file", "/does/not/exist", "no such file")
	f(RoleDecode, "tracing.otlp_endpoint", "http://127.0.0.1:99999", `"99999" is no port`)
	f(RoleDecode, "tracing.otlp_endpoint", "http://127.0.0.1:4318")
	f(RoleUp, "model.path", "/does/not/exist.gguf", "no such file", "GGUF")
	f(RoleUp, "model.path", t.TempDir(), "not a file")
	f(RolePrefill, "model.path", there)
	f(RoleEncoder, "encoder.store_max_pending_items", "0", "at least 1")
	f(RoleEncoder, "encoder.store_max_pending_bytes", "0", "at least 1")
	f(RoleEncoder, "encoder.store_read_buffer_bytes", "0", "at least 1")
	f(RoleEncoder, "encoder.store_read_buffer_bytes", "1")
	f(RoleEncoder, "encoder.on_unconfirmed", "panic", "drain or exit")
	f(RoleUp, "encoder.on_unconfirmed", "exit")
	f(RoleEncoder, "encoder.admission", "never", "always or second-sighting")
	f(RoleEncoder, "encoder.tensor_parallel_size", "2", "ECMooncakeConnector producers require tensor_parallel_size=1.")
	f(RoleEncoder, "encoder.pipeline_parallel_size", "2", "ECMooncakeConnector producers do not support pipeline parallelism.")
	f(RoleEncoder, "encoder.data_parallel_size", "0", "ECMooncakeConnector producers require data_parallel_size=1.")
	f(RoleEncoder, "encoder.enable_lora", "true", "cross_encoder_cache does not support LoRA")
	f(RoleEncoder, "encoder.modalities", "image,audio", "only modality image")
	f(RoleEncoder, "encoder.mm_processor_cache_gb", "0", "cross_encoder_cache requires mm_processor_cache_gb > 0 to preserve content identifiers across Encoders and restarts")
	f(RoleEncoder, "encoder.mm_processor_cache_gb", "0.5")
	f(RolePrefill, "encoder.mm_processor_cache_gb", "0")
}

// Without a shared Store, what only a shared Store cannot do is let pass.
func TestProducerWithoutStore(t *testing.T) {
	l, err := Load(Input{Env: []string{"AFTERIMAGE_ENCODER_CROSS_ENCODER_CACHE=false", "AFTERIMAGE_ENCODER_ENABLE_LORA=true",
		"AFTERIMAGE_ENCODER_MM_PROCESSOR_CACHE_GB=0", "AFTERIMAGE_ENCODER_MODALITIES=audio"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Validate(RoleEncoder); err != nil {
		t.Error(err)
	}
}

func TestModelPair(t *testing.T) {
	there := write(t, "")
	f := func(role Role, kind, path, mmproj string, wants ...string) {
		t.Helper()
		l, _ := Load(Input{})
		l.Engine.Kind, l.Model.Path, l.Model.MMProj = kind, path, mmproj
		err := l.Validate(role)
		if len(wants) > 0 {
			check(t, err, wants...)
		} else if err != nil {
			t.Errorf("%s with %q and %q: %v", role, path, mmproj, err)
		}
	}
	f(RoleUp, EngineLlama, there, there)
	f(RoleUp, EngineLlama, there, "", "model.mmproj", "belongs to "+there)
	f(RoleUp, EngineLlama, "", there, "model.path", "neither for the demo model")
	f(RolePrefill, EngineLlama, there, "")
	f(RoleEncoder, EngineDevice, there, "")
}

func TestMooncakeClientIsAnAddressToCall(t *testing.T) {
	for _, value := range []string{"", "host", ":50052", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:65536"} {
		for _, role := range []Role{RoleEncoder, RoleUp} {
			l, err := Load(Input{Env: []string{"AFTERIMAGE_STORE_KIND=mooncake", "AFTERIMAGE_MOONCAKE_CLIENT=" + value}})
			if err != nil {
				t.Fatal(err)
			}
			check(t, l.Validate(role), "mooncake.client", value, "AFTERIMAGE_MOONCAKE_CLIENT", "HOST:PORT", "127.0.0.1:50052")
		}
	}
	l, err := Load(Input{Env: []string{"AFTERIMAGE_STORE_KIND=mooncake"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Validate(RoleEncoder), l.Validate(RoleUp)); err != nil {
		t.Errorf("the default address: %v", err)
	}
	l.Mooncake.ReadConnections, l.Mooncake.WriteConnections, l.Mooncake.CallTimeout = 65, 0, 0
	check(t, l.Validate(RoleEncoder), "mooncake.read_connections", "at most 64", "mooncake.write_connections", "at least 1", "mooncake.call_timeout", "at least 1s")
	l.Mooncake = DefaultConfig().Mooncake
	l.Store.Bytes = 16*MiB - 1
	check(t, l.Validate(RoleUp), "store.bytes", "at least 16MiB", "mooncake_client")
	l, err = Load(Input{Env: []string{"AFTERIMAGE_STORE_KIND=mooncake", "AFTERIMAGE_STORE_TTL=1h", "AFTERIMAGE_STORE_TENANT_QUOTA_BYTES=1MiB"}})
	if err != nil {
		t.Fatal(err)
	}
	check(t, l.Validate(RoleUp), "store.ttl", "until it needs the room", "store.tenant_quota_bytes", "at its master")
}

func TestSharingWithVLLM(t *testing.T) {
	good := []string{"AFTERIMAGE_STORE_KIND=mooncake", "AFTERIMAGE_ENCODER_PROTOCOL=v3", "AFTERIMAGE_ENCODER_VLLM_MODEL=models/m"}
	f := func(env string, wants ...string) {
		t.Helper()
		for _, role := range []Role{RoleEncoder, RoleUp} {
			l, err := Load(Input{Env: append(slices.Clone(good), env)})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Validate(role); len(wants) > 0 {
				check(t, err, wants...)
			} else if err != nil {
				t.Errorf("%s with %s: %v", role, env, err)
			}
		}
	}
	f("X=1")
	f("AFTERIMAGE_ENCODER_VLLM_DTYPE=float32")
	f("AFTERIMAGE_ENCODER_VLLM_HASH=sha512")
	f("AFTERIMAGE_ENCODER_PROTOCOL=v2", "encoder.protocol", "a1 or v3")
	f("AFTERIMAGE_ENCODER_VLLM_MODEL=", "encoder.vllm_model", "exactly as vLLM")
	f("AFTERIMAGE_ENCODER_VLLM_ENCODER=", "encoder.vllm_encoder", "8658476b2a0fa47e54f56cb92e3f1162")
	f("AFTERIMAGE_ENCODER_VLLM_DTYPE=int8", "encoder.vllm_dtype", "bfloat16, float16 or float32")
	f("AFTERIMAGE_ENCODER_VLLM_HASH=md5", "encoder.vllm_hash", "sha512")
	f("AFTERIMAGE_STORE_KIND=ram", "encoder.protocol", "set store.kind to mooncake")
	f("AFTERIMAGE_ENGINE_KIND=device", "encoder.protocol", "made up")
	f("AFTERIMAGE_ENCODER_CROSS_ENCODER_CACHE=false", "encoder.protocol", "cross_encoder_cache is off")
}
