// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestVLLM: which fleets of vLLM workers are taken, and what is said of the others. Values are as on the command
// line of vLLM's own proxy.
func TestVLLM(t *testing.T) {
	const e, d = "vllm.encode_servers_urls=http://e1:1, http://e2:2", "vllm.decode_servers_urls=http://d1:3"
	home := t.TempDir()
	f := func(values []string, wants ...string) {
		t.Helper()
		l, err := Load(Input{Env: []string{"HOME=" + home}})
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range values {
			key, text, _ := strings.Cut(kv, "=")
			if err := l.Set(key, text, "flag --x"); err != nil {
				t.Fatal(err)
			}
		}
		switch err := l.Validate(RoleGateway); {
		case len(wants) > 0:
			check(t, err, wants...)
		case err != nil:
			t.Errorf("%q: %v", values, err)
		}
	}
	f([]string{e, d})
	f([]string{e, d, "vllm.prefill_servers_urls=none"})
	f([]string{e, d, "vllm.prefill_servers_urls=Disable"})
	f([]string{e, d, "vllm.prefill_servers_urls=http://p:1"})
	f([]string{e, d, "vllm.ec_consumer_zmq_addrs=tcp://d1:1"})
	f([]string{e, d, "vllm.ec_consumer_dp_size=2", "vllm.ec_consumer_zmq_addrs=tcp://d1:1,tcp://d1:2"})
	f([]string{"vllm.dynamic_registration=true"})
	f([]string{e, d, "vllm.probe_interval=0", "vllm.evicted_ttl=0"})

	f([]string{e}, "vllm.decode_servers_urls", "missing")
	f([]string{d}, "vllm.encode_servers_urls", "missing")
	f([]string{"vllm.prefill_servers_urls=http://p:1"}, "vllm.encode_servers_urls", "vllm.decode_servers_urls")
	f([]string{"vllm.encode_servers_urls=e1:1", d}, "vllm.encode_servers_urls", "http://HOST:PORT")
	f([]string{e, "vllm.decode_servers_urls=http://e1:1/"}, "vllm.decode_servers_urls", "named twice")
	f([]string{e, d, "vllm.ec_consumer_zmq_addrs=tcp://a,tcp://b"}, "1 servers x 1 replicas are 1, not 2")
	f([]string{e, d, "vllm.prefill_servers_urls=http://p:1", "vllm.ec_consumer_zmq_addrs=tcp://a"}, "supports E+PD only")
	f([]string{e, d, "vllm.ec_consumer_dp_size=0"}, "vllm.ec_consumer_dp_size", "at least 1")
	f([]string{e, d, "vllm.fail_threshold=0"}, "vllm.fail_threshold", "at least 1")
	f([]string{e, d, "vllm.decode_retries=-1"}, "vllm.decode_retries", "at least 0")
	f([]string{e, d, "vllm.fetch=anyone"}, "vllm.fetch", "gateway or workers")
	f([]string{e, d, "vllm.probe_interval=-1"}, "vllm.probe_interval", "below zero")
	f([]string{e, d, "vllm.probe_timeout=0"}, "vllm.probe_timeout", "at least 1ms")
	f([]string{e, d, "vllm.port=70000"}, "vllm.port", "at most 65535")
	f([]string{e, d, "gateway.routing=best"}, "gateway.routing", "affinity or round-robin or random")
	f([]string{e, d, "gateway.prefills=http://a:1"}, "gateway.prefills", "Afterimage's workers or vLLM's")
	f([]string{e, "vllm.dynamic_registration=true"}, "vllm.dynamic_registration", "register through /instances")

	const at, relay, model = "vllm.ec_consumer_zmq_addrs=tcp://d1:1", "relay.enabled=true", "relay.model=m"
	f([]string{e, d, at, relay, model})
	f([]string{"vllm.dynamic_registration=true", relay, model})
	f([]string{e, d, at, relay})
	f([]string{e, d, at, relay, "mooncake.admin=10.0.0.5"}, "mooncake.admin", "HOST:PORT")
	for _, own := range []string{"relay.prefix=x", "relay.revision=x", "relay.dtype=float16"} {
		f([]string{e, d, at, relay, own}, own[:strings.Index(own, "=")], "relay.model", "afterimage store ls")
	}
	f([]string{e, d, relay, model}, "relay.enabled", "vllm.ec_consumer_zmq_addrs")
	f([]string{e, d, at, relay, model, "vllm.no_rewrite=true"}, "relay.enabled", "vllm.no_rewrite")
	f([]string{e, d, "vllm.ec_consumer_zmq_addrs=ipc:///x", relay, model}, "vllm.ec_consumer_zmq_addrs", "ipc:///x", "tcp://HOST:PORT")
	f([]string{e, d, at, relay, model, "relay.dtype=int8"}, "relay.dtype", "bfloat16 or float16 or float32")
	f([]string{e, d, at, relay, model, "relay.encoder="}, "relay.encoder", "missing")
	f([]string{e, d, at, relay, model, "relay.memory_bytes=1MiB"}, "relay.memory_bytes", "too small; give at least 16MiB")
	f([]string{e, d, at, relay, model, "mooncake.client=x"}, "mooncake.client", "HOST:PORT")
	f([]string{"gateway.prefills=http://a:1", relay, model}, "relay.enabled", "before vLLM workers")

	file := write(t, "{}")
	f([]string{e, d, at, relay, model, "relay.state=" + file})
	f([]string{e, d, at, relay, model, "relay.state=" + filepath.Join(home, "a", "b", "state.json")}) // folders that it makes
	f([]string{e, d, at, relay, model, "relay.state=" + home}, "relay.state", home+" is no file", "a folder that this user can write to")
	f([]string{e, d, at, relay, model, "relay.state=" + filepath.Join(file, "state.json")}, "relay.state", file+": not a directory", "a folder that this user can write to")
	f([]string{e, d, at, relay, model, "relay.state=" + filepath.Join(file, "x", "state.json")}, "relay.state", "not a directory")
	if os.Geteuid() != 0 { // whom nothing is closed to
		closed := filepath.Join(home, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		f([]string{e, d, at, relay, model, "relay.state=" + filepath.Join(closed, "state.json")}, "relay.state", closed+": permission denied")
	}
	home = ""
	f([]string{e, d, at, relay, model}, "relay.state", "neither XDG_STATE_HOME nor HOME is set")
	f([]string{e, d, at, relay, model, "relay.enabled=false"})
}

// TestRelayState: where the state is unless it is named.
func TestRelayState(t *testing.T) {
	f := func(want string, env ...string) {
		t.Helper()
		if got, err := RelayState(env, "8000"); err != nil || got != want {
			t.Errorf("%q: got %s, %v", env, got, err)
		}
	}
	f("/var/lib/x/afterimage/relay-8000.json", "HOME=/h", "XDG_STATE_HOME=/var/lib/x")
	f("/h/.local/state/afterimage/relay-8000.json", "HOME=/h", "XDG_STATE_HOME=")
}

// TestSeconds: times as vLLM's flags have them.
func TestSeconds(t *testing.T) {
	f := func(text string, want time.Duration, ok bool) {
		t.Helper()
		var s Seconds
		if err := s.UnmarshalText([]byte(text)); (err == nil) != ok || ok && time.Duration(s) != want {
			t.Errorf("%q: got %v, %v; want %v", text, s, err, want)
		}
	}
	f("5", 5*time.Second, true)
	f("0.5", 500*time.Millisecond, true)
	f(" 900 ", 15*time.Minute, true)
	f("2m", 2*time.Minute, true)
	f("0", 0, true)
	for _, bad := range []string{"", "soon", "1e300", "nan", "inf", "5 5"} {
		f(bad, 0, false)
	}
}

// TestListenAt: host and port as vLLM's proxy has them.
func TestListenAt(t *testing.T) {
	f := func(env []string, want, source string) {
		t.Helper()
		l, err := Load(Input{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		if l.Gateway.Listen != want || l.Source("gateway.listen") != source {
			t.Errorf("%q: listens at %s (%s), want %s (%s)", env, l.Gateway.Listen, l.Source("gateway.listen"), want, source)
		}
	}
	f(nil, "127.0.0.1:8000", "default")
	f([]string{"AFTERIMAGE_VLLM_PORT=9000"}, "0.0.0.0:9000", "env AFTERIMAGE_VLLM_PORT")
	f([]string{"AFTERIMAGE_VLLM_HOST=::1"}, "[::1]:8000", "env AFTERIMAGE_VLLM_HOST")
	f([]string{"AFTERIMAGE_VLLM_HOST=10.0.0.1", "AFTERIMAGE_VLLM_PORT=9000", "AFTERIMAGE_GATEWAY_LISTEN=1.2.3.4:5"}, "10.0.0.1:9000", "env AFTERIMAGE_VLLM_PORT")
}
