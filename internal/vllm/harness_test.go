// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/proxy"
)

// front is a Front behind a server.
type front struct {
	*Front
	url string
}

// newFront serves a Front until the test ends.
func newFront(t *testing.T, adjust func(*Config)) *front {
	t.Helper()
	cfg := Config{
		Registry: RegistryConfig{FailThreshold: 3, EvictedTTL: 15 * time.Minute}, Routing: Affinity, DecodeRetries: 1, Failovers: 2,
		ShortNames: true, KeepAlive: 5 * time.Second, ProbeTimeout: 2 * time.Second, WriteTimeout: 10 * time.Second,
		Body: proxy.BodyLimits{MaxBytes: 64 << 20}, MaxMedia: 64, MaxFetchBytes: 64 << 20,
		Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	}
	if adjust != nil {
		adjust(&cfg)
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.Start(ctx)
	mux := http.NewServeMux()
	f.Routes(mux)
	mux.HandleFunc("GET /health", f.ServeHealth)
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.Close()
		cancel()
		f.Close()
	})
	return &front{f, s.URL}
}

// answered is an answer as a client saw it.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// post sends a chat request named id.
func (f *front) post(t *testing.T, id string, body []byte) answered {
	t.Helper()
	return f.send(t, http.MethodPost, "/v1/chat/completions", body, "X-Request-Id", id)
}

// send makes any call; header holds names and values.
func (f *front) send(t *testing.T, method, path string, body []byte, header ...string) answered {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v after %q", method, path, err, got)
	}
	return answered{resp.StatusCode, resp.Header, got}
}
