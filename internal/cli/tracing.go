// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/tracing"
)

// tracingEnd bounds the export of the last spans of a process.
const tracingEnd = time.Second

// trace starts to record spans if a receiver is named, by the configuration or by the variables that all programs
// share: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS,
// OTEL_SERVICE_NAME and OTEL_SDK_DISABLED. end sends what is left. A Store takes part in no traces.
func (p *process) trace(cfg config.Tracing, env func(string) string) (end func()) {
	at := receiver(cfg, env)
	if at == "" || p.role == config.RoleStore || strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return func() {}
	}
	if protocol := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env("OTEL_EXPORTER_OTLP_PROTOCOL")); protocol == "grpc" {
		p.log.Warn("no spans are recorded: OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and only JSON over HTTP is spoken here", "endpoint", at)
		return func() {}
	}
	p.tracer = tracing.New(tracing.Config{
		URL: at, Headers: otlpHeaders(cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), env("OTEL_EXPORTER_OTLP_HEADERS"))),
		Service: cmp.Or(env("OTEL_SERVICE_NAME"), "afterimage-"+string(p.role)), Name: p.name, Version: version,
		Registry: p.registry, Logger: p.log,
	})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), tracingEnd)
		defer cancel()
		p.tracer.Close(ctx)
	}
}

// receiver returns where spans go, "" if nowhere.
func receiver(cfg config.Tracing, env func(string) string) string {
	if cfg.Endpoint == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" {
		return env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") // with its path
	}
	base := cmp.Or(cfg.Endpoint, env("OTEL_EXPORTER_OTLP_ENDPOINT"))
	u, err := url.Parse(base)
	if base == "" || err != nil || cfg.Endpoint != "" && strings.Trim(u.Path, "/") != "" {
		return base
	}
	return strings.TrimRight(base, "/") + "/v1/traces"
}

// otlpHeaders reads a list like "api-key=secret,other=a%20b".
func otlpHeaders(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, v, ok := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			continue
		}
		if plain, err := url.PathUnescape(strings.TrimSpace(v)); err == nil {
			out[name] = plain
		}
	}
	return out
}
