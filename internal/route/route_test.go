// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func ready(names ...string) []Peer {
	var out []Peer
	for _, n := range names {
		out = append(out, Peer{Name: n, Ready: true})
	}
	return out
}

func names(index []int, peers []Peer) []string {
	out := []string{}
	for _, i := range index {
		out = append(out, peers[i].Name)
	}
	return out
}

// TestRankGolden pins the placement: gateways of different builds must agree on it. The values agree with
// those of the xxhash package for Python.
func TestRankGolden(t *testing.T) {
	peers := ready("encoder-0", "encoder-1", "encoder-2", "encoder-3")
	peers[2].Weight = 3
	f := func(id, want string) {
		t.Helper()
		if got := strings.Join(names(Rank(id, peers), peers), " "); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
	f("", "encoder-2 encoder-0 encoder-1 encoder-3")
	f("a", "encoder-3 encoder-1 encoder-2 encoder-0")
	f("b", "encoder-2 encoder-3 encoder-1 encoder-0")
	f("af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262", "encoder-1 encoder-3 encoder-0 encoder-2")
	if got := peers[0].score("a"); got != 0x1553ae338ae2285e {
		t.Errorf("got score %#x", got)
	}
}

var drawPeers = rapid.Custom(func(t *rapid.T) []Peer {
	n := rapid.IntRange(0, 12).Draw(t, "n")
	out := make([]Peer, n)
	for i := range out {
		out[i] = Peer{
			Name:     fmt.Sprintf("encoder-%d", i),
			Weight:   rapid.IntRange(0, 5).Draw(t, "weight"),
			Ready:    rapid.IntRange(0, 9).Draw(t, "ready") > 0,
			Draining: rapid.IntRange(0, 9).Draw(t, "draining") == 0,
			Load:     rapid.IntRange(0, 20).Draw(t, "load"),
		}
	}
	return out
})

// TestRankStable: a peer that leaves takes only itself out of every ranking, and the order in which
// the peers are listed means nothing.
func TestRankStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		peers := drawPeers.Draw(t, "peers")
		id := rapid.String().Draw(t, "id")
		want := names(Rank(id, peers), peers)

		shuffled := rapid.Permutation(peers).Draw(t, "shuffled")
		if got := names(Rank(id, shuffled), shuffled); !slices.Equal(got, want) {
			t.Fatalf("order matters: %v and %v", got, want)
		}
		if len(peers) == 0 {
			return
		}
		gone := rapid.IntRange(0, len(peers)-1).Draw(t, "gone")
		name := peers[gone].Name
		rest := slices.Delete(slices.Clone(peers), gone, gone+1)
		want = slices.DeleteFunc(want, func(n string) bool { return n == name })
		if got := names(Rank(id, rest), rest); !slices.Equal(got, want) {
			t.Fatalf("without %s: got %v, want %v", name, got, want)
		}
	})
}

func TestRankUsable(t *testing.T) {
	peers := ready("a", "b", "c")
	peers[0].Ready = false
	peers[1].Draining = true
	if got := Rank("x", peers); !slices.Equal(got, []int{2}) {
		t.Errorf("got %v, want [2]", got)
	}
}

// TestRankSpread places 20,000 identifiers; each peer's share is within five standard deviations of
// its weight's.
func TestRankSpread(t *testing.T) {
	f := func(weights ...int) {
		t.Helper()
		const ids = 20_000
		total := 0
		var peers []Peer
		for i, w := range weights {
			peers = append(peers, Peer{Name: fmt.Sprintf("encoder-%d", i), Weight: w, Ready: true})
			total += w
		}
		got := make([]int, len(peers))
		for i := range ids {
			got[Rank(fmt.Sprintf("%064x", i), peers)[0]]++
		}
		for i, w := range weights {
			p := float64(w) / float64(total)
			if d := math.Abs(float64(got[i]) - ids*p); d > 5*math.Sqrt(ids*p*(1-p)) {
				t.Errorf("weights %v: peer %d got %d, want about %.0f", weights, i, got[i], ids*p)
			}
		}
	}
	f(1, 1)
	f(1, 1, 1, 1, 1, 1, 1, 1)
	f(1, 2, 4)
	f(3, 3, 3)
}

func TestBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		peers := drawPeers.Draw(t, "peers")
		id := rapid.String().Draw(t, "id")
		factor := rapid.Float64Range(0, 3).Draw(t, "factor")
		rank := Rank(id, peers)
		got := Bounded(id, peers, factor)
		if len(rank) == 0 {
			if got != -1 {
				t.Fatalf("got %d of no usable peers", got)
			}
			return
		}
		if !slices.Contains(rank, got) {
			t.Fatalf("got %d, usable are %v", got, rank)
		}
		load, weight := 1, 0
		for _, i := range rank {
			load, weight = load+peers[i].Load, weight+peers[i].weight()
		}
		for _, i := range rank {
			bound := math.Ceil(max(factor, 1) * float64(load) * float64(peers[i].weight()) / float64(weight))
			fits := float64(peers[i].Load+1) <= bound
			if i == got {
				if !fits {
					t.Fatalf("peer %d has %d and would exceed %v", i, peers[i].Load, bound)
				}
				return
			}
			if fits {
				t.Fatalf("peer %d was passed over for %d", i, got)
			}
		}
	})
}

func TestBoundedPrefersFirstChoice(t *testing.T) {
	peers := ready("a", "b", "c")
	first := Rank("x", peers)
	if got := Bounded("x", peers, 1.25); got != first[0] {
		t.Errorf("idle: got %d, want %d", got, first[0])
	}
	peers[first[0]].Load = 10
	if got := Bounded("x", peers, 1.25); got != first[1] {
		t.Errorf("first choice busy: got %d, want %d", got, first[1])
	}
}

func TestLeastLoaded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		peers := drawPeers.Draw(t, "peers")
		got := LeastLoaded(rapid.String().Draw(t, "key"), peers)
		least := math.Inf(1)
		for _, p := range peers {
			if p.Usable() {
				least = min(least, float64(p.Load)/float64(p.weight()))
			}
		}
		switch {
		case got < 0 && !math.IsInf(least, 1):
			t.Fatal("a usable peer was not found")
		case got >= 0 && (!peers[got].Usable() || float64(peers[got].Load)/float64(peers[got].weight()) != least):
			t.Fatalf("got %+v, least is %v", peers[got], least)
		}
	})
}

func TestLeastLoadedSpreadsTies(t *testing.T) {
	peers := ready("a", "b", "c", "d")
	got := map[int]int{}
	for i := range 400 {
		key := fmt.Sprint(i)
		at := LeastLoaded(key, peers)
		if again := LeastLoaded(key, peers); again != at {
			t.Fatalf("key %s went to %d and %d", key, at, again)
		}
		got[at]++
	}
	for i := range peers {
		if got[i] < 50 {
			t.Errorf("peer %d got %d of 400", i, got[i])
		}
	}
}

func TestForced(t *testing.T) {
	peers := ready("encoder-0", "encoder-1", "0", "slow", "gone")
	peers[3].Draining = true
	peers[4].Ready = false
	f := func(pick string, want int, message string) {
		t.Helper()
		got, err := Forced(pick, peers)
		if got != want || (err == nil) != (message == "") || err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("%q: got %d, %v", pick, got, err)
		}
	}
	f("encoder-1", 1, "")
	f("1", 1, "")
	f("0", 2, "") // a name goes before a place
	f("slow", -1, `peer "slow" takes no work: it is draining`)
	f("4", -1, "not ready")
	f("5", -1, `no peer "5": there are 0 (encoder-0), 1 (encoder-1)`)
	f("-1", -1, "no peer")
	f("", -1, "no peer")
	if _, err := Forced("0", nil); err == nil || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkRank16(b *testing.B) {
	var peers []Peer
	for i := range 16 {
		peers = append(peers, Peer{Name: fmt.Sprintf("encoder-%d", i), Ready: true})
	}
	id := strings.Repeat("a", 64)
	b.ReportAllocs()
	for b.Loop() {
		Rank(id, peers)
	}
}
