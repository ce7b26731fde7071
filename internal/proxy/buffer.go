// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"math/bits"
	"net"
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

// steps is how many sizes of buffer there are from one power of two to the next: at most an eighth of a
// buffer is room that its body does not need.
const steps = 8

// pooled holds the buffers that wait, by class.
var pooled [8 * steps]sync.Pool

// class returns the size of the buffers that n bytes are read into, and the place of their pool. n lies
// between minPooled and maxPooled.
func class(n int64) (size int64, pool int) {
	order := bits.Len64(uint64(n)) - 1 // n is in [1<<order, 2<<order)
	step := int64(1) << order / steps
	i := (n - 1<<order + step - 1) / step // up to steps, which is the next power
	return 1<<order + i*step, (order-16)*steps + int(i)
}

// Buffer is memory with several readers: the request whose body it holds, and the calls that send the
// media which lie in it. It is used again when each of them has released its share. A reader that
// cannot tell whether it is done keeps its share for ever, which leaves the memory to the collector.
type Buffer struct {
	b      []byte
	shares atomic.Int32
}

// NewBuffer returns a buffer of length 0 and a capacity of at least n bytes, with one share.
func NewBuffer(n int64) *Buffer {
	size := n
	if n >= minPooled && n <= maxPooled {
		var pool int
		size, pool = class(n)
		if b, ok := pooled[pool].Get().(*Buffer); ok {
			b.b = b.b[:0]
			b.shares.Store(1)
			return b
		}
	}
	b := &Buffer{b: make([]byte, 0, size)}
	b.shares.Store(1)
	return b
}

// Bytes returns what the buffer holds. It is valid for as long as the caller has a share.
func (b *Buffer) Bytes() []byte { return b.b }

// Release gives one share back. Its holder must not touch the memory any more. A nil buffer has none.
func (b *Buffer) Release() {
	if b == nil {
		return
	}
	switch left := b.shares.Add(-1); {
	case left < 0:
		panic("BUG: a buffer was released more often than it was shared")
	case left == 0 && cap(b.b) >= minPooled && cap(b.b) <= maxPooled:
		if size, pool := class(int64(cap(b.b))); size == int64(cap(b.b)) {
			pooled[pool].Put(b)
		}
	}
}

// Retain takes one share more.
func (b *Buffer) Retain() { b.shares.Add(1) }

// Shares returns how many shares are held, for tests.
func (b *Buffer) Shares() int { return int(b.shares.Load()) }

// Share returns r, which reads from b, as a body that holds a share of its own until it is closed, which
// net/http does when it will not read a body any more.
func (b *Buffer) Share(r io.Reader) io.ReadCloser {
	if p, ok := r.(*net.Buffers); ok {
		return Pieces(*p).Body(b)
	}
	b.Retain()
	return &sharing{Reader: r, release: sync.OnceFunc(b.Release)}
}

// sharing is the body of a call that reads from a buffer.
type sharing struct {
	io.Reader
	release func()
}

// Close implements io.Closer.
func (s *sharing) Close() error {
	s.release()
	return nil
}
