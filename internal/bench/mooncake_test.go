// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"afterimage/internal/testkit"
)

// smallMooncake is a MooncakeBench of a moment. No peer of its is installed.
func smallMooncake(t *testing.T) MooncakeBench {
	b := DefaultMooncakeBench()
	b.Dir, b.Env = testkit.MooncakeDir(t), os.Environ()
	b.Rounds, b.Sizes, b.Counts = Rounds{Rounds: 1, Warmup: 1, Samples: 2}, []int{16 << 10, 1 << 20}, []int{1, 3}
	b.SegmentBytes = 128 << 20
	return b
}

// unmeasured returns how many rows say of each peer that it was not measured.
func unmeasured(r Report) map[string]int {
	n := map[string]int{}
	for _, row := range r.Rows {
		if row.NotMeasured != "" {
			n[row.Peer]++
		}
	}
	return n
}

func TestMooncakeResolverBench(t *testing.T) {
	r, err := smallMooncake(t).Resolver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := values(t, r)
	for _, name := range []string{
		"1x16KiB full hit: p50 us", "3x16KiB GET from another node: p50 us", "1x1MiB full hit: p50 us",
		"3x1MiB GET from another node: p50 us", "4 misses: p50 us",
	} {
		if !(got[name] > 0) {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	if n := unmeasured(r); n[peerVLLM] != 5 || n[peerDummy] != 5 || n[peerPython] != 4 {
		t.Errorf("rows without a peer %v, want 4 cases of each, vLLM's misses and dummy's mean", n)
	}
	if r.ExitCode() == 0 {
		t.Error("exit code 0 with rows that were not measured")
	}
}

func TestMooncakePublishBench(t *testing.T) {
	b := smallMooncake(t)
	b.Peers = []string{peerDummy}
	r, err := b.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := values(t, r)
	for _, name := range []string{"1x16KiB PUT: p50 us", "3x1MiB PUT to another node: p50 us", "exists beside a slow PUT: p50 us"} {
		if !(got[name] > 0) {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	if n := got["3x1MiB PUT: registrations of all"]; n != 0 {
		t.Errorf("%v registrations", n)
	}
	for _, row := range r.Rows {
		want := "not asked for"
		if row.Peer == peerDummy {
			want = "make peers"
		}
		if row.NotMeasured != "" && !strings.Contains(row.NotMeasured, want) {
			t.Errorf("%s: %q, want %q", row.Peer, row.NotMeasured, want)
		}
	}
}

// A peer that fails at its start, or dies, ends the run with its last words, and leaves nothing behind.
func TestBrokenPeer(t *testing.T) {
	b := smallMooncake(t)
	b.Python = "/bin/false"
	if _, err := b.Resolver(t.Context()); err == nil || !strings.Contains(err.Error(), "vllm ended before it was ready") {
		t.Errorf("got %v, want that the peer ended", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("interrupted")
	cancel(gone)
	if _, err := b.Publish(ctx); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
}

// Rows of all cases have the targets of the figures that the project is held to.
func TestMooncakeTargets(t *testing.T) {
	x := &mooncakeRun{mooncakeRig: &mooncakeRig{peers: map[string]*peer{}}}
	w := &way{p50s: []float64{100}}
	for _, c := range []struct {
		n, size int
		want    []float64 // hit against vLLM, PUT against vLLM, hit on another node
	}{
		{1, 16 << 10, []float64{0, 0.7, 0}}, {4, 16 << 10, []float64{0.65, 0.7, 0}},
		{1, 1 << 20, []float64{0, 0.35, 1.2}}, {4, 1 << 20, []float64{0.2, 0.35, 1.6}},
		{1, 30 << 20, []float64{0, 0.35, 1.2}}, {4, 30 << 20, []float64{0.2, 0.35, 1.2}},
	} {
		x.n, x.size, x.rows = c.n, c.size, nil
		x.compare("full hit", w, peerVLLM, w, vllmHit(c.size, c.n))
		x.compare("PUT", w, peerVLLM, w, vllmPut(c.size))
		x.nodeRow(w, w)
		var got []float64
		for _, row := range x.rows[:3] {
			got = append(got, row.Target)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%dx%s: targets %v, want %v", c.n, sizeName(c.size), got, c.want)
		}
		if extra := x.rows[3:]; c.size < nodeFrom != (len(extra) == 1) {
			t.Errorf("%dx%s: %d rows of the hop", c.n, sizeName(c.size), len(extra))
		}
	}
}
