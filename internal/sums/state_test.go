// SPDX-License-Identifier: Apache-2.0

package sums

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
)

func random(r *rand.ChaCha8, n int) []byte {
	b := make([]byte, n)
	r.Read(b)
	return b
}

// teams are the numbers of texts that are taken in side by side.
var teams = []int{1, 2, 4}

// TestState: texts side by side have the sums that each has alone.
func TestState(t *testing.T) {
	r := rand.NewChaCha8([32]byte{1})
	for _, together := range teams {
		for n := range 300 {
			var l lanes
			var states [maxLanes]state
			var texts [maxLanes][]byte
			for i := range together {
				states[i], texts[i] = initial, random(r, n+1)
				l.states[i], l.texts[i] = &states[i], &texts[i][0]
			}
			blocks := n / blockBytes
			if blocks > 0 {
				l.take(together, blocks)
			}
			for i := range together {
				text := texts[i][:n]
				if got, want := states[i].sum(text[blocks*blockBytes:], uint64(n)), sha256.Sum256(text); got != want {
					t.Fatalf("text %d of %d with %d bytes: %x, want %x", i, together, n, got, want)
				}
			}
		}
	}
}

func BenchmarkTogether(b *testing.B) {
	const size = 256 << 10
	for _, together := range teams {
		b.Run(fmt.Sprint(together), func(b *testing.B) {
			var l lanes
			for i := range together {
				l.states[i], l.texts[i] = &state{}, &make([]byte, size)[0]
			}
			b.SetBytes(int64(together * size))
			for b.Loop() {
				l.take(together, size/blockBytes)
			}
		})
	}
}
