// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkReserveRelease(b *testing.B) {
	a := newArena(b, 64*mib)
	b.ReportAllocs()
	for b.Loop() {
		reserve(b, a, mib).Release()
	}
}

// BenchmarkFragmented holds thousands of ranges of mixed sizes and replaces one per round.
func BenchmarkFragmented(b *testing.B) {
	a := newArena(b, 256*mib)
	rng := rand.New(rand.NewPCG(1, 2))
	held := make([]*Buf, 4096)
	for i := range held {
		held[i] = reserve(b, a, 1+rng.IntN(64<<10))
	}
	b.ReportAllocs()
	for b.Loop() {
		i := rng.IntN(len(held))
		held[i].Release()
		held[i] = reserve(b, a, 1+rng.IntN(64<<10))
	}
	for _, h := range held {
		h.Release()
	}
}

func BenchmarkRetainReleaseParallel(b *testing.B) {
	a := newArena(b, mib)
	buf := reserve(b, a, mib)
	buf.Commit()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			buf.Retain().Release()
		}
	})
	buf.Release()
}
