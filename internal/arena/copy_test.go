// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

func TestCopy(t *testing.T) {
	src := make([]byte, sharedCopyBytes+3*copyPieceBytes+5)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(src) // never fails
	for _, n := range []int{
		0, 1, copyPieceBytes, sharedCopyBytes - 1, sharedCopyBytes, sharedCopyBytes + 1, sharedCopyBytes + copyPieceBytes, len(src),
	} {
		for name, lens := range map[string][2]int{"as long": {n, n}, "shorter source": {n + 9, n}, "shorter destination": {n, min(n+9, len(src))}} {
			dst := make([]byte, lens[0]+1) // the last stays
			got := Copy(dst[:lens[0]], src[:lens[1]])
			if got != n || !bytes.Equal(dst[:n], src[:n]) || !bytes.Equal(dst[n:], make([]byte, len(dst)-n)) {
				t.Errorf("%d bytes, %s: copied %d, or others", n, name, got)
			}
		}
	}
}

// BenchmarkCopy compares Copy with the built-in one, between ranges of an arena: one copy at a time, and two.
func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{4, 8, 30} {
		for name, do := range map[string]func(dst, src []byte) int{"Copy": Copy, "copy": func(dst, src []byte) int { return copy(dst, src) }} {
			for _, at := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%dMiB/%d at once", name, n, at), func(b *testing.B) { benchCopy(b, do, n*mib, at) })
			}
		}
	}
}

func benchCopy(b *testing.B, do func(dst, src []byte) int, size, n int) {
	a := newArena(b, int64(2*n*size))
	dst, src := make([]*Buf, n), make([]*Buf, n)
	for i := range n {
		dst[i], src[i] = reserve(b, a, size), reserve(b, a, size)
		defer dst[i].Release()
		defer src[i].Release()
		do(dst[i].Bytes(), src[i].Bytes()) // which faults its pages in
	}
	b.SetBytes(int64(n * size))
	for b.Loop() {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { do(dst[i].Bytes(), src[i].Bytes()) })
		}
		all.Wait()
	}
}
