// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

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
	f(RoleUp, "engine.dir", "/does/not/exist", "no such folder", "native libraries")
	f(RolePrefill, "engine.dir", there, "not a folder")
	f(RoleEncoder, "engine.dir", t.TempDir())
	f(RoleStore, "engine.dir", "/does/not/exist")
	f(RolePrefill, "model.chat_template", "/does/not/exist.jinja", "no such file", "Jinja")
	f(RoleUp, "model.chat_template", "chatml")
	f(RoleEncoder, "model.chat_template", "/does/not/exist.jinja")
	f(RoleUp, "engine.threads", "0", "at least 1")
	f(RoleUp, "engine.threads", "100000", "at most 512")
	f(RoleStore, "engine.threads", "0")
	f(RoleUp, "up.encoders", "0", "at least 1")
	f(RoleEncoder, "server.busy_poll", "-1ms", "at least 0s")
	f(RolePrefill, "server.busy_poll", "2ms", "at most 1ms")
	f(RoleEncoder, "server.busy_poll", "0s")
	f(RoleUp, "gateway.listen", "8000", "HOST:PORT")
	f(RoleUp, "decode.data_listen", "0.0.0.0:8401", "prefill workers can reach") // with no decode workers, too
	f(RoleDecode, "decode.listen", "8400", "HOST:PORT")
	f(RolePrefill, "decode.listen", "8400") // of no interest to a P/D
	f(RoleUp, "gateway.listen", "127.0.0.1:99999", "0 (any free one) to 65535")
	f(RoleUp, "gateway.listen", ":0")
	f(RoleUp, "gateway.encoders", "http://a:1", "afterimage gateway")
	f(RoleGateway, "gateway.prefills", "a:1", "http://HOST:PORT")
	f(RoleGateway, "gateway.prefills", "http://a:1")
	f(RoleGateway, "gateway.prefills", "", "at least one worker")
	f(RoleUp, "gateway.max_queued_bytes", "1MiB", "smaller than gateway.max_body_bytes", "at least 64MiB")
	f(RoleUp, "gateway.max_queued_bytes", "0B")
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
	f(RoleDecode, "fleet.token_file", "/does/not/exist", "no such file", "a file of tokens")
	f(RoleUp, "gateway.keys_file", "/does/not/exist", "no such file", "afterimage keys new")
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

// A modelled accelerator computes on no GPU, so asking for one is a mistake. auto and off ask for none.
func TestModelledEngineHasNoGPU(t *testing.T) {
	f := func(kind, gpu string, wants ...string) {
		t.Helper()
		for _, role := range []Role{RoleUp, RoleEncoder, RolePrefill, RoleDecode} {
			l, err := Load(Input{Env: []string{"AFTERIMAGE_ENGINE_KIND=" + kind, "AFTERIMAGE_ENGINE_GPU=" + gpu}})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Validate(role); len(wants) > 0 {
				check(t, err, wants...)
			} else if err != nil {
				t.Errorf("%s: %s on %s: %v", role, kind, gpu, err)
			}
		}
	}
	f(EngineDevice, "vulkan", "engine.gpu", "engine.kind is device", "set that to llama, or leave this at auto")
	f(EngineDevice, "auto")
	f(EngineDevice, "off")
	f(EngineLlama, "vulkan")
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
