// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/gateway"
	"afterimage/internal/media"
)

// serveStubs runs ServeStubs for the time of a test.
func serveStubs(t *testing.T) stubAddresses {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeStubs(ctx, w) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stubs: %v", err)
		}
	})
	var at stubAddresses
	if err := json.NewDecoder(r).Decode(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

// serveGateway runs a gateway before workers and returns its URL.
func serveGateway(t *testing.T, at stubAddresses) string {
	t.Helper()
	g := gateway.New(gateway.Config{
		Encoders: []string{at.Encoder}, Prefills: []string{at.Prefill},
		MaxBodyBytes: 8 << 20, MaxImages: 4, Limits: media.DefaultLimits(),
		ProbeEvery: 10 * time.Millisecond, ProbeTimeout: 10 * time.Second, PrepareTimeout: 10 * time.Second,
		EncodeTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	probes, cancel := context.WithCancel(context.Background())
	g.Start(probes)
	mux := http.NewServeMux()
	g.Routes(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		cancel()
		g.Close()
	})
	if err := poll(t.Context(), "the gateway is ready", func() (bool, error) { return g.Ready() == nil, nil }); err != nil {
		t.Fatal(g.Ready())
	}
	return server.URL
}

// Both ways bring the same answer, through a real gateway.
func TestOverhead(t *testing.T) {
	at := serveStubs(t)
	image, err := Noise(100_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	o := newOverhead(serveGateway(t, at), at, image)
	done := 0
	via, direct, err := o.pairs(t.Context(), 3, func(i int) { done = i })
	if err != nil || len(via) != 3 || len(direct) != 3 || done != 3 {
		t.Fatalf("%d and %d times, %d done, error %v; want 3 each", len(via), len(direct), done, err)
	}
	for i := range via {
		if via[i] <= 0 || direct[i] <= 0 {
			t.Errorf("pair %d took %v and %v ms", i, via[i], direct[i])
		}
	}
}

// A request that fails is no measurement.
func TestOverheadFails(t *testing.T) {
	at := serveStubs(t)
	o := newOverhead(serveGateway(t, at), at, []byte("no picture"))
	if _, _, err := o.pairs(t.Context(), 1, func(int) {}); err == nil || !strings.Contains(err.Error(), "answered 400") {
		t.Errorf("a file that is no image: got %v", err)
	}
}

func TestPictures(t *testing.T) {
	big, err := Noise(1<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(big) < 1<<20 || len(big) > 1<<20+10_000 {
		t.Errorf("noise has %d bytes, want 1 MiB and little more", len(big))
	}
	seen := map[string]bool{}
	for i := range 4 {
		p, err := painted(64, uint64(i%3))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := media.Inspect(p, media.DefaultLimits()); err != nil {
			t.Error(err)
		}
		seen[string(p)] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d distinct pictures of 3 seeds", len(seen))
	}
}

func TestProgressWithoutATerminal(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b)
	p.step("asking about %d pictures", 2)
	p.at(1, 2)
	p.end()
	if got := b.String(); got != "asking about 2 pictures\n" {
		t.Errorf("got %q, want one line per step and no control characters", got)
	}
	newProgress(nil).step("unseen")
}

func TestMachine(t *testing.T) {
	if got := cpuModel("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t: x\n"); got != "Some CPU @ 3 GHz" {
		t.Errorf("got %q", got)
	}
	if got := Machine(); !strings.Contains(got, "cores, go1.") {
		t.Errorf("got %q", got)
	}
}
