// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/config"
)

// TestReceiver: where spans go, by the configuration and by the variables of OpenTelemetry.
func TestReceiver(t *testing.T) {
	f := func(key string, env map[string]string, want string) {
		t.Helper()
		if got := receiver(config.Tracing{Endpoint: key}, func(name string) string { return env[name] }); got != want {
			t.Errorf("%q, %v: %q, want %q", key, env, got, want)
		}
	}
	const base, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	f("", nil, "")
	f("http://a:4318", nil, "http://a:4318/v1/traces")
	f("http://a:4318/", nil, "http://a:4318/v1/traces")
	f("http://a:4318/otlp/v1/traces", nil, "http://a:4318/otlp/v1/traces")
	f("", map[string]string{base: "http://b:4318"}, "http://b:4318/v1/traces")
	f("", map[string]string{base: "http://b:4318/prefix/"}, "http://b:4318/prefix/v1/traces")
	f("", map[string]string{base: "http://b:4318", traces: "http://c/x"}, "http://c/x")
	f("http://a:4318", map[string]string{base: "http://b:4318", traces: "http://c/x"}, "http://a:4318/v1/traces")
}

func TestOTLPHeaders(t *testing.T) {
	got := otlpHeaders(" api-key=a%20b , other = c,broken,=x,bad=%zz,")
	if d := cmp.Diff(map[string]string{"api-key": "a b", "other": "c"}, got); d != "" {
		t.Error(d)
	}
}

// TestTracerIsOptional: nothing is recorded unless a receiver is named that can be spoken to.
func TestTracerIsOptional(t *testing.T) {
	f := func(env map[string]string, on bool, words string) {
		t.Helper()
		var log bytes.Buffer
		p := &process{role: config.RoleGateway, name: "gateway", registry: prometheus.NewRegistry(), log: slog.New(slog.NewTextHandler(&log, nil))}
		p.trace(config.Tracing{}, func(name string) string { return env[name] })()
		if (p.tracer != nil) != on || !strings.Contains(log.String(), words) {
			t.Errorf("%v: recorded %v, log %q; want %v, %q", env, p.tracer != nil, log.String(), on, words)
		}
	}
	const at = "OTEL_EXPORTER_OTLP_ENDPOINT"
	f(nil, false, "")
	f(map[string]string{at: "http://127.0.0.1:1"}, true, "")
	f(map[string]string{at: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, false, "")
	f(map[string]string{at: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, "only JSON over HTTP")
}
