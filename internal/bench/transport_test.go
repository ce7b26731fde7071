// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"afterimage/internal/control"
)

// A small run of everything, with all processes in this one.
func TestTransportBench(t *testing.T) {
	store := small(t)
	store.Sizes, store.Counts, store.Seeding = []int{4 << 10}, []int{2}, Seeding{}
	b := TransportBench{
		Sizes: []int{4 << 10, 64 << 10}, Samples: 3, Slices: 2, Slice: 256 << 10,
		Queue: QueueBench{Transfers: 16, Bytes: 4 << 10, Room: 4, Runs: 2},
		Store: store,
	}
	b.lender = func(ctx context.Context, socket string) (func(), error) {
		ctx, cancel := context.WithCancel(ctx)
		r, w := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- ServeLender(ctx, socket, b.Sizes, w) }()
		if _, err := r.Read(make([]byte, 64)); err != nil {
			cancel()
			return nil, errors.Join(err, <-ended)
		}
		return func() {
			cancel()
			r.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}, nil
	}
	rep, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Row{}
	for _, r := range rep.Rows {
		if r.NotMeasured == "" && !(r.Value >= 0) {
			t.Errorf("%s, %s: %v", r.Case, r.Metric, r.Value)
		}
		got[r.Case+"; "+r.Metric] = r
	}
	for _, name := range []string{
		"4KiB on loan; p50 us, reserve to ready", "64KiB over TCP; p50 us per transfer", "64KiB over TCP; heap bytes per transfer",
		"16 x 4KiB through memory for 4; places between coming and finishing, at most, all runs", "Store hit, 2x4KiB on loan; p50 us to ready",
	} {
		if r, ok := got[name]; !ok || r.OK == nil {
			t.Errorf("no checked row %q", name)
		}
	}
	if r := got["64KiB on loan; payload bytes copied, all runs"]; r.OK == nil || !*r.OK {
		t.Errorf("loans copied %v bytes", r.Value)
	}
	if r := got["64KiB on loan; bytes through the connection per transfer"]; r.OK == nil || !*r.OK {
		t.Errorf("loans put %v bytes on the connection", r.Value)
	}
}

// An Encoder that cannot deliver is an error of the run, not a fast one.
func TestTransportBenchFails(t *testing.T) {
	b := TransportBench{Sizes: []int{4 << 10}, Samples: 1}
	b.lender = func(context.Context, string) (func(), error) { return nil, errors.New("no such program") }
	if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("got %v", err)
	}
}

func TestOrder(t *testing.T) {
	b := order(7, control.Grant{Transfer: "000102030405060708090a0b0c0d0e0f", Attempt: 1, Generation: 2, Bytes: 3})
	if len(b) != orderBytes || b[0] != 7 || b[4] != 1 || b[8] != 2 || b[16] != 3 || b[39] != 15 {
		t.Errorf("got % x", b)
	}
}

// TestDisplaced: one that finishes last though it came first counts in full, however few pairs it is in; so
// do orders that are no order of arrival at all.
func TestDisplaced(t *testing.T) {
	f := func(want int, finished ...int) {
		t.Helper()
		if got := displaced(finished); got != want {
			t.Errorf("%v: got %d, want %d", finished, got, want)
		}
	}
	f(0, 0, 1, 2, 3)
	f(1, 1, 0, 3, 2)
	f(3, 3, 2, 1, 0)
	f(3, 3, 0, 1, 2)
	f(2, 2, 0, 1, 3)
	const n, room = 64, 8
	most := n * maxDisplaced
	lifo, random := make([]int, n), rand.New(rand.NewPCG(1, 2)).Perm(n)
	for i := range lifo { // the first to come have room at once, the others wait
		lifo[i] = i
		if i >= room {
			lifo[i] = n - 1 - (i - room)
		}
	}
	if got := displaced(lifo); float64(got) <= most {
		t.Errorf("last come, first served: %d places, within the target of %v", got, most)
	}
	if got := displaced(random); float64(got) <= most {
		t.Errorf("served at random: %d places, within the target of %v", got, most)
	}
}
