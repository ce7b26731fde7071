// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Bodies of megabytes are read into memory that is used again: fresh memory costs page faults and
// zeroing, and a few such bodies fill the heap, so that every third request pays for a collection.
// Smaller bodies are not worth the count, larger ones not the memory.
const (
	minPooled = 64 << 10
	maxPooled = 8 << 20
)

// pooled holds the buffers that wait, by the power of two that their capacity reaches.
var pooled [24]sync.Pool

// buffer is memory with several readers: the request whose body it holds, and the calls that send the
// images which lie in it. It is used again when each of them has released its share. A reader that
// cannot tell whether it is done keeps its share for ever, which leaves the memory to the collector.
type buffer struct {
	b      []byte
	shares atomic.Int32
}

// newBuffer returns a buffer of length 0 and a capacity of at least n, with one share.
func newBuffer(n int64) *buffer {
	size := n
	if n >= minPooled && n <= maxPooled {
		class := bits.Len64(uint64(n - 1))
		if b, ok := pooled[class].Get().(*buffer); ok {
			b.b = b.b[:0]
			b.shares.Store(1)
			return b
		}
		size = 1 << class
	}
	b := &buffer{b: make([]byte, 0, size)}
	b.shares.Store(1)
	return b
}

// release gives one share back. Its holder must not touch the memory any more. A nil buffer has none.
func (b *buffer) release() {
	if b == nil {
		return
	}
	switch left := b.shares.Add(-1); {
	case left < 0:
		panic("BUG: a buffer was released more often than it was shared")
	case left == 0 && cap(b.b) >= minPooled && cap(b.b) <= maxPooled:
		pooled[bits.Len(uint(cap(b.b)))-1].Put(b)
	}
}

// retain takes one share more.
func (b *buffer) retain() { b.shares.Add(1) }

// sharing is the body of a call that reads from a buffer. Its share ends when it is closed, which
// net/http does when it will not read a body any more.
type sharing struct {
	io.Reader
	release func()
}

// share returns r, which reads from b, as a body that holds a share of its own.
func (b *buffer) share(r io.Reader) io.ReadCloser {
	b.retain()
	return &sharing{Reader: r, release: sync.OnceFunc(b.release)}
}

// Close implements io.Closer.
func (s *sharing) Close() error {
	s.release()
	return nil
}
