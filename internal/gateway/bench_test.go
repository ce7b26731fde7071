// SPDX-License-Identifier: Apache-2.0

package gateway_test

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

	"afterimage/internal/bench"
	"afterimage/internal/control"
	"afterimage/internal/gateway"
	"afterimage/internal/media"
)

// BenchmarkChat1MiB is a request with one image of 1 MiB through a gateway to workers that do no work,
// all in one process over loopback.
func BenchmarkChat1MiB(b *testing.B) {
	file, err := bench.Noise(1<<20, 1)
	if err != nil {
		b.Fatal(err)
	}
	body := bench.ImageRequest("", file)
	url := startGateway(b, bench.StubEncoder(), bench.StubPrefill())
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		resp, err := http.Post(url+control.PathChat, "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("status %d, error %v: %s", resp.StatusCode, err, answer)
		}
	}
}

// startGateway runs a gateway before one Encoder and one P/D and returns its URL once it is ready.
func startGateway(tb testing.TB, enc, pd http.Handler) string {
	encoder, prefill := httptest.NewServer(enc), httptest.NewServer(pd)
	g := gateway.New(gateway.Config{
		Encoders: []string{encoder.URL}, Prefills: []string{prefill.URL},
		MaxBodyBytes: 64 << 20, MaxImages: 16, Limits: media.DefaultLimits(), Repairs: 2,
		ProbeEvery: 10 * time.Millisecond, ProbeTimeout: 5 * time.Second,
		PrepareTimeout: 10 * time.Second, EncodeTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	g.Start(ctx)
	mux := http.NewServeMux()
	g.Routes(mux)
	server := httptest.NewServer(mux)
	tb.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
		cancel()
		g.Close()
		encoder.Close()
		prefill.Close()
	})
	for deadline := time.Now().Add(20 * time.Second); g.Ready() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal(g.Ready())
		}
	}
	return server.URL
}
