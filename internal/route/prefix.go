// SPDX-License-Identifier: Apache-2.0

package route

// Reason says why Prefixed chose a peer.
type Reason string

// The reasons of Prefixed.
const (
	ByPrefix   Reason = "prefix"     // it holds the prompt's beginning
	ByLoad     Reason = "load"       // nobody holds enough of the prompt for it to matter
	Overridden Reason = "overridden" // who holds it has too much to do
)

// Prefixed returns the peer for a prompt of so many blocks, of which peer i is thought to hold held[i], from
// the first on; -1 if no peer is usable. A peer that holds at least half takes the prompt while its load, with
// one request more, stays within a bound; of several, the one that holds most, then the one with the least
// load. The bound is a multiple of its fair share of the whole load, which grows with what it holds, from 1 to
// factor: the more there is to compute again elsewhere, the longer a queue is worth it. Else the load decides.
// Between equals, rendezvous on key does.
func Prefixed(key string, peers []Peer, held []int, blocks int, factor float64) (int, Reason) {
	rank := Rank(key, peers)
	load, weight := 1, 0
	for _, i := range rank {
		load += peers[i].Load
		weight += peers[i].weight()
	}
	best, reason := -1, ByLoad
	for _, i := range rank {
		if held[i] == 0 || 2*held[i] < blocks {
			continue
		}
		reason = Overridden
		bound := 1 + max(factor-1, 0)*float64(held[i])/float64(blocks)
		share := float64(load) * float64(peers[i].weight()) / float64(weight)
		switch {
		case float64(peers[i].Load) >= bound*share:
		case best < 0, held[i] > held[best], held[i] == held[best] && peers[i].lighter(peers[best]):
			best = i
		}
	}
	if best >= 0 {
		return best, ByPrefix
	}
	return leastLoaded(rank, peers), reason
}

// lighter says whether p has less to do for its weight than q: load by weight, without division.
func (p Peer) lighter(q Peer) bool { return p.Load*q.weight() < q.Load*p.weight() }
