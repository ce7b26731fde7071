// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// From sharedCopyBytes on, bytes are copied by two goroutines, each of which takes the next piece when it is done with
// its last: the caches hold no more of them, and one core alone has about half of the memory's bandwidth. 30 MiB take
// half the time, and no more than with one each when two are copied at once (BenchmarkCopy, 2 vCPU EPYC). A piece
// is large enough for copy to go past the caches.
const (
	sharedCopyBytes = 16 << 20
	copyPieceBytes  = 2 << 20
)

// Copy copies the bytes of src to dst, like the built-in copy, and returns how many: the shorter length. Large ones it
// copies on two cores, and so in less time, where a second one is free.
func Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < sharedCopyBytes || runtime.GOMAXPROCS(0) < 2 {
		return copy(dst, src)
	}
	var next atomic.Int64
	pieces := func() {
		for {
			at := int(next.Add(copyPieceBytes)) - copyPieceBytes
			if at >= n {
				return
			}
			to := min(at+copyPieceBytes, n)
			copy(dst[at:to], src[at:to])
		}
	}
	var other sync.WaitGroup
	other.Go(pieces)
	pieces()
	other.Wait()
	return n
}
