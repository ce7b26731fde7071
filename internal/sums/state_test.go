// SPDX-License-Identifier: Apache-2.0

package sums

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"
)

func random(r *rand.ChaCha8, n int) []byte {
	b := make([]byte, n)
	r.Read(b)
	return b
}

// TestState: two texts side by side have the sums that each has alone.
func TestState(t *testing.T) {
	r := rand.NewChaCha8([32]byte{1})
	for n := range 300 {
		p, q := random(r, n), random(r, n)
		a, b := initial, initial
		whole := n / blockBytes * blockBytes
		if whole > 0 {
			blocks(&a, &b, &p[0], &q[0], n/blockBytes)
		}
		if got, want := a.sum(p[whole:], uint64(n)), sha256.Sum256(p); got != want {
			t.Fatalf("first text of %d bytes: %x, want %x", n, got, want)
		}
		if got, want := b.sum(q[whole:], uint64(n)), sha256.Sum256(q); got != want {
			t.Fatalf("second text of %d bytes: %x, want %x", n, got, want)
		}
	}
}

func BenchmarkPair(b *testing.B) {
	p := make([]byte, 256<<10)
	one, two := initial, initial
	b.Run("two", func(b *testing.B) {
		b.SetBytes(int64(2 * len(p)))
		for b.Loop() {
			blocks(&one, &two, &p[0], &p[0], len(p)/blockBytes)
		}
	})
	b.Run("one", func(b *testing.B) {
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			sha256.Sum256(p)
		}
	})
}
