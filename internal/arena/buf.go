// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"fmt"
	"sync/atomic"
)

// Buf is a reference-counted range of an arena: one of this process, or a neighbour's (see Foreign).
type Buf struct {
	a         *Arena // nil when foreign
	lent      *lent  // nil unless foreign
	trace     trace
	off       int64
	size      int64  // what the range takes in the arena, a multiple of align
	mem       []byte // what the holder asked for
	span      int32  // in a.free
	refs      atomic.Int32
	committed atomic.Bool
	isolated  atomic.Bool // was quarantined

	quarantines int // in force; guarded by a.mu
}

// note keeps what is done to the range, for the debug build.
func (b *Buf) note(op string) { b.trace.add(op) }

// Bytes returns the range. It is written only between Reserve and Commit, and read only by holders of
// a reference.
func (b *Buf) Bytes() []byte { b.mustLive("Bytes"); return b.mem }

// Len returns the size in bytes, as reserved or truncated.
func (b *Buf) Len() int { return len(b.mem) }

// Offset returns where the range starts in its arena and in that one's File, in bytes.
func (b *Buf) Offset() int64 { return b.off }

// In says whether the range is one of a, so that Offset makes sense to whom a was shared with.
func (b *Buf) In(a *Arena) bool { return a != nil && b.a == a }

// Shared says whether anybody beside the caller holds a reference. The answer is stable only where
// the caller's is the one reference that others could retain from.
func (b *Buf) Shared() bool { return b.refs.Load() > 1 }

// Truncate shortens a range that is not committed yet to its first n bytes, at least 1, and gives the
// rest back. Only the one who fills the range may call it.
func (b *Buf) Truncate(n int) {
	b.mustLive("Truncate")
	if b.committed.Load() {
		panic(b.bug("Truncate of a committed range"))
	}
	if b.isolated.Load() {
		panic(b.bug("Truncate of a quarantined range"))
	}
	if n < 1 || n > len(b.mem) {
		panic(b.bug(fmt.Sprintf("Truncate to %d bytes of a range of %d", n, len(b.mem))))
	}
	b.mem = b.mem[:n:n]
	if keep := roundUp(int64(n)); keep < b.size {
		b.a.shorten(b, keep)
	}
}

// Commit makes the range final: from here on it is only read. The caller keeps its reference. A
// second Commit does nothing.
func (b *Buf) Commit() {
	b.mustLive("Commit")
	if b.committed.Load() {
		return
	}
	b.a.mu.Lock()
	defer b.a.mu.Unlock()
	if b.isolated.Load() {
		panic(b.bug("Commit of a quarantined range"))
	}
	if b.committed.CompareAndSwap(false, true) {
		b.a.st.Reserved -= b.size
		b.a.st.Committed += b.size
	}
}

// Abort gives back a range that was never committed. It does nothing after Commit or Quarantine, so
// it can be deferred by whoever reserved the range; other holders use Release.
func (b *Buf) Abort() {
	if !b.committed.Load() && !b.isolated.Load() {
		b.Release()
	}
}

// Retain adds a reference and returns b. The caller must hold one, or a lock that keeps one alive.
func (b *Buf) Retain() *Buf { b.count("Retain", 1); return b }

// Release drops a reference; the last one gives the range back to the arena, or to the lender.
func (b *Buf) Release() {
	if b.count("Release", -1) > 0 {
		return
	}
	if b.lent != nil {
		b.lent.giveBack()
		return
	}
	b.a.debug.drop(b)
	b.a.giveBack(b)
}

// count adds d to the references and returns their number. A range without references stays so, even
// when a caller recovers from the panic.
func (b *Buf) count(op string, d int32) int32 {
	for {
		n := b.refs.Load()
		if n <= 0 {
			panic(b.bug(op + " of a range without references"))
		}
		if b.refs.CompareAndSwap(n, n+d) {
			b.note(op)
			return n + d
		}
	}
}

func (b *Buf) mustLive(op string) {
	if b.refs.Load() <= 0 {
		panic(b.bug(op + " of a range without references"))
	}
}

// bug is the text of a panic. Under the debug tag it ends with who did what to the range.
func (b *Buf) bug(what string) string { return "BUG: arena: " + what + b.history() }
