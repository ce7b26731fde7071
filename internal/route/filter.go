// SPDX-License-Identifier: Apache-2.0

package route

import "github.com/zeebo/xxh3"

// A Filter says of keys whether a peer may hold them: a Bloom filter (Bloom 1970) of 10 bits a key, which takes 1 of 100
// for held that are not, and fewer where keys are few, and none for not held that are. An empty one holds nothing. Its probes are at
// a, a+b, a+2b… of the low and high half of XXH3-64, as Kirsch and Mitzenmacher (2006) show to be enough; its bytes are
// the same on every platform, so that peers may send them.
type Filter []byte

// MaxFilterKeys is how many keys a Filter should have at most: 64 KiB.
const MaxFilterKeys = 64 << 10 * 8 / filterBits

const (
	filterBits   = 10 // of each key
	filterProbes = 7  // 10 bits x ln 2
)

// minFilter is the least size of a filter that is not for nothing, in bytes: in fewer bits few keys soon look like others.
const minFilter = 64

// NewFilter returns an empty filter with room for n keys.
func NewFilter(n int) Filter {
	if n <= 0 {
		return nil
	}
	return make(Filter, max(minFilter, (n*filterBits+7)/8))
}

// Add puts key in. A filter without room stays empty.
func (f Filter) Add(key string) {
	for at := range f.probes(key) {
		f[at/8] |= 1 << (at % 8)
	}
}

// Has says whether key may be in f.
func (f Filter) Has(key string) bool {
	for at := range f.probes(key) {
		if f[at/8]&(1<<(at%8)) == 0 {
			return false
		}
	}
	return len(f) > 0
}

func (f Filter) probes(key string) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		if len(f) == 0 {
			return
		}
		sum := xxh3.HashString(key)
		at, step := sum&(1<<32-1), sum>>32|1
		for range filterProbes {
			if !yield(at % (8 * uint64(len(f)))) {
				return
			}
			at += step
		}
	}
}

// Holder returns the peer for id: the best of Rank, unless only others hold what it stands for. Then it is the best of
// those whose load stays within factor times its fair share, as in Bounded: one that holds it spares the work, and one
// that has too much to do would make it wait. It is -1 if no peer is usable. holds says so of peer i.
func Holder(id string, peers []Peer, factor float64, holds func(i int) bool) int {
	rank := Rank(id, peers)
	if len(rank) == 0 {
		return -1
	}
	fits := within(rank, peers, factor)
	for _, i := range rank {
		if holds(i) && (i == rank[0] || fits(i)) {
			return i
		}
	}
	return rank[0]
}
