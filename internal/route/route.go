// SPDX-License-Identifier: Apache-2.0

// Package route chooses peers: for an identifier, so that the same image goes to the same Encoder, and
// for a prompt, so that it meets the P/D that holds its beginning unless the load speaks against it. Each
// choice is a pure function of a snapshot of the peers; indexes in results are indexes into that snapshot.
// What P/Ds hold is a guess, an Index of what they were sent; Prompt says what prompts have in common. What others hold is
// a hint of the caller's.
//
// Identifiers are placed by rendezvous hashing: each peer gets a score for the identifier, and the
// highest wins. A peer that leaves moves only the identifiers that it held, and one that comes takes
// its share from all others alike. Scores depend on the peer's name, its weight and the identifier,
// and on nothing else: every gateway computes the same, whatever its platform and the order of its
// peers.
package route

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
)

// maxWeight bounds the cost of a score, which grows with the weight.
const maxWeight = 256

// Peer is what a choice depends on.
type Peer struct {
	Name     string // unique
	Weight   int    // share of the work, relative to others; 0 stands for 1, at most 256 counts
	Ready    bool
	Draining bool // finishes what it has and wants nothing more
	Load     int  // requests in work and waiting
}

// Usable says whether the peer takes work.
func (p Peer) Usable() bool { return p.Ready && !p.Draining }

func (p Peer) weight() int { return min(max(p.Weight, 1), maxWeight) }

// score of a peer for an identifier: the greatest of as many hashes as the peer weighs, so that it
// wins in proportion to its weight, in integers only.
func (p Peer) score(id string) uint64 {
	seed := xxh3.HashString(p.Name)
	best := uint64(0)
	for i := range p.weight() {
		best = max(best, xxh3.HashStringSeed(id, seed+uint64(i)*0x9E3779B97F4A7C15))
	}
	return best
}

// Rank returns the usable peers, the best for id first.
func Rank(id string, peers []Peer) []int {
	type scored struct {
		index int
		score uint64
	}
	all := make([]scored, 0, len(peers))
	for i, p := range peers {
		if p.Usable() {
			all = append(all, scored{i, p.score(id)})
		}
	}
	slices.SortFunc(all, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(peers[a.index].Name, peers[b.index].Name))
	})
	out := make([]int, len(all))
	for i, s := range all {
		out[i] = s.index
	}
	return out
}

// Bounded returns the best peer for id whose load, with one request more, stays within factor times
// its fair share of the whole load; -1 if no peer is usable. A factor of 1.25 lets an identifier
// stay with its first choice until that peer has a quarter more than its share; a factor below 1
// counts as 1.
func Bounded(id string, peers []Peer, factor float64) int {
	rank := Rank(id, peers)
	load, weight := 1, 0
	for _, i := range rank {
		load += peers[i].Load
		weight += peers[i].weight()
	}
	for _, i := range rank {
		share := float64(load) * float64(peers[i].weight()) / float64(weight)
		// The bound is rounded up, as in the scheme's proof: with it some peer always fits.
		if float64(peers[i].Load) < max(factor, 1)*share {
			return i
		}
	}
	return -1
}

// First returns the best peer for id, whatever its load; -1 if no peer is usable.
func First(id string, peers []Peer) int {
	if rank := Rank(id, peers); len(rank) > 0 {
		return rank[0]
	}
	return -1
}

// Holder returns the peer for id where some are thought to hold what it stands for; -1 if no peer is usable. Of those
// that do (holds says so of peer i) it is what Bounded makes of them alone: to give what it holds takes a peer nearly
// nothing, so a load that others do not share does not speak against it. Where none does, it is that of Bounded if
// shared says that all of them can get it elsewhere, and else First, so that equal identifiers meet.
func Holder(id string, peers []Peer, factor float64, holds func(i int) bool, shared bool) int {
	holders, found := slices.Clone(peers), false
	for i := range holders {
		if holders[i].Ready = holders[i].Usable() && holds(i); holders[i].Ready {
			found = true
		}
	}
	switch {
	case found:
		return Bounded(id, holders, factor)
	case shared:
		return Bounded(id, peers, factor)
	}
	return First(id, peers)
}

// LeastLoaded returns the usable peer with the least load for its weight, -1 if none is usable.
// Between equals, rendezvous on key decides, so that equal keys meet on one peer and different ones
// spread.
func LeastLoaded(key string, peers []Peer) int { return leastLoaded(Rank(key, peers), peers) }

// leastLoaded returns the first of rank with the least load for its weight.
func leastLoaded(rank []int, peers []Peer) int {
	best := -1
	for _, i := range rank {
		if best < 0 || peers[i].lighter(peers[best]) {
			best = i
		}
	}
	return best
}

// Nth returns usable peer n, counted round, -1 if none is usable: with a counter all get their turn, with a
// random number each is as likely.
func Nth(n uint64, peers []Peer) int {
	var usable []int
	for i, p := range peers {
		if p.Usable() {
			usable = append(usable, i)
		}
	}
	if len(usable) == 0 {
		return -1
	}
	return usable[n%uint64(len(usable))]
}

// Forced returns the peer that a client asked for by name, or by its place among the peers sorted
// as given. It fails if there is none or it takes no work; the error names the choices.
func Forced(pick string, peers []Peer) (int, error) {
	at := slices.IndexFunc(peers, func(p Peer) bool { return p.Name == pick })
	if at < 0 {
		n, err := strconv.Atoi(pick)
		if err != nil || n < 0 || n >= len(peers) {
			return -1, fmt.Errorf("no peer %q: there are %s", pick, describe(peers))
		}
		at = n
	}
	if !peers[at].Usable() {
		return -1, fmt.Errorf("peer %q takes no work: it is %s", peers[at].Name, state(peers[at]))
	}
	return at, nil
}

func describe(peers []Peer) string {
	if len(peers) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, p := range peers {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d (%s)", i, p.Name)
	}
	return b.String()
}

func state(p Peer) string {
	if p.Draining {
		return "draining"
	}
	return "not ready"
}
