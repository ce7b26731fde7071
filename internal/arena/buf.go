// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"fmt"
	"sync/atomic"
)

// Buf is a reference-counted range of an arena.
type Buf struct {
	a         *Arena
	off       int64
	size      int64  // what the range takes in the arena, a multiple of align
	mem       []byte // what the holder asked for
	refs      atomic.Int32
	committed atomic.Bool
}

// Bytes returns the range. It is written only between Reserve and Commit, and read only by holders of
// a reference.
func (b *Buf) Bytes() []byte { b.mustLive("Bytes"); return b.mem }

// Len returns the size in bytes, as reserved or truncated.
func (b *Buf) Len() int { return len(b.mem) }

// Offset returns where the range starts in the arena and in its File, in bytes.
func (b *Buf) Offset() int64 { return b.off }

// Shared says whether anybody beside the caller holds a reference. The answer is stable only where
// the caller's is the one reference that others could retain from.
func (b *Buf) Shared() bool { return b.refs.Load() > 1 }

// Truncate shortens a range that is not committed yet to its first n bytes, at least 1, and gives the
// rest back. Only the one who fills the range may call it.
func (b *Buf) Truncate(n int) {
	b.mustLive("Truncate")
	if b.committed.Load() {
		panic("BUG: arena: Truncate of a committed range")
	}
	if n < 1 || n > len(b.mem) {
		panic(fmt.Sprintf("BUG: arena: Truncate to %d bytes of a range of %d", n, len(b.mem)))
	}
	b.mem = b.mem[:n:n]
	if keep := roundUp(int64(n)); keep < b.size {
		tail := b.size - keep
		b.size = keep
		b.a.giveBack(b.off+keep, tail, false, false)
	}
}

// Commit makes the range final: from here on it is only read. The caller keeps its reference. A
// second Commit does nothing.
func (b *Buf) Commit() {
	b.mustLive("Commit")
	b.a.mu.Lock()
	defer b.a.mu.Unlock()
	if b.committed.CompareAndSwap(false, true) {
		b.a.st.Reserved -= b.size
		b.a.st.Committed += b.size
	}
}

// Abort gives back a range that was never committed. It does nothing after Commit, so it can be
// deferred.
func (b *Buf) Abort() {
	if !b.committed.Load() {
		b.Release()
	}
}

// Retain adds a reference and returns b. The caller must hold one, or a lock that keeps one alive.
func (b *Buf) Retain() *Buf { b.count("Retain", 1); return b }

// Release drops a reference; the last one gives the range back to the arena.
func (b *Buf) Release() {
	if b.count("Release", -1) == 0 {
		b.a.giveBack(b.off, b.size, b.committed.Load(), true)
	}
}

// count adds d to the references and returns their number. A range without references stays so, even
// when a caller recovers from the panic.
func (b *Buf) count(op string, d int32) int32 {
	for {
		n := b.refs.Load()
		if n <= 0 {
			panic("BUG: arena: " + op + " of a range without references")
		}
		if b.refs.CompareAndSwap(n, n+d) {
			return n + d
		}
	}
}

func (b *Buf) mustLive(op string) {
	if b.refs.Load() <= 0 {
		panic("BUG: arena: " + op + " of a range without references")
	}
}
