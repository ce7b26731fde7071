// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/proxy"
)

// BenchmarkChat is a request with a picture of 4 MiB, or with text alone, through a Front and stub workers, all in one process. 'afterimage bench
// gateway' measures the same between processes.
func BenchmarkChat(b *testing.B) {
	picture := chat(image(string(bytes.Repeat([]byte("ABCDabcd"), 4<<20/8))))
	for _, known := range []bool{false, true} {
		b.Run(fmt.Sprintf("known=%v", known), func(b *testing.B) { benchmarkChat(b, known, picture) })
	}
	b.Run("text", func(b *testing.B) { benchmarkChat(b, true, chat(text)) })
}

func benchmarkChat(b *testing.B, known bool, chat []byte) {
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ec_transfer_params":{"x":{"item_indices":[0],"metadata":{"image_grid_thw":[1,16,16]}}}}`)
	}))
	defer e.Close()
	d := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, completion)
	}))
	defer d.Close()
	f, err := New(Config{
		Static:  []Instance{{Role: Encode, URL: e.URL, Replicas: 1}, {Role: PrefillDecode, URL: d.URL, Replicas: 1}},
		Routing: Affinity, ShortNames: known, KeepAlive: 5 * time.Second, WriteTimeout: 10 * time.Second, MaxMedia: 8,
		Body: proxy.BodyLimits{MaxBytes: 64 << 20}, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	mux := http.NewServeMux()
	f.Routes(mux)
	s := httptest.NewServer(mux)
	defer s.Close()
	client := proxy.NewClient(time.Minute)
	defer client.CloseIdleConnections()
	body := proxy.Pieces{chat}
	b.SetBytes(body.Size())
	for b.Loop() {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.URL+"/v1/chat/completions", body.Body(nil))
		if err != nil {
			b.Fatal(err)
		}
		req.ContentLength = body.Size()
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status)
		}
	}
}
