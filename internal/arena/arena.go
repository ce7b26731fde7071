// SPDX-License-Identifier: Apache-2.0

// Package arena owns the one memory region of a process in which every embedding lives.
package arena

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

var (
	// ErrFull: no room at this moment; a later try may succeed.
	ErrFull = errors.New("arena: full")
	// ErrTooLarge: larger than the arena ever holds; no retry helps.
	ErrTooLarge = errors.New("arena: larger than the arena")
	// ErrClosed: the arena is closed.
	ErrClosed = errors.New("arena: closed")
)

// Config sizes an arena.
type Config struct {
	Name  string // shows in /proc/<pid>/maps and in metrics
	Bytes int64
}

// Stats is a snapshot of an arena's use. All figures are bytes.
type Stats struct {
	Capacity  int64
	Reserved  int64 // handed out, not yet committed
	Committed int64
	Peak      int64 // most bytes handed out at once since start
}

// Arena hands out ranges of one region. All methods may be called from any goroutine.
type Arena struct {
	cfg Config
	mu  sync.Mutex
	st  Stats
}

// New maps an arena.
func New(cfg Config) (*Arena, error) {
	return &Arena{cfg: cfg, st: Stats{Capacity: cfg.Bytes}}, nil
}

// Reserve takes n bytes, aligned to 64. The caller owns the one reference of the Buf: it fills
// Bytes, then calls Commit and later Release, or Abort.
func (a *Arena) Reserve(n int) (*Buf, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if int64(n) > a.cfg.Bytes {
		return nil, fmt.Errorf("%w: %d bytes of %d", ErrTooLarge, n, a.cfg.Bytes)
	}
	if a.st.Reserved+a.st.Committed+int64(n) > a.cfg.Bytes {
		return nil, ErrFull
	}
	a.st.Reserved += int64(n)
	b := &Buf{a: a, mem: make([]byte, n)}
	b.refs.Store(1)
	return b, nil
}

// Stats returns the use at this moment.
func (a *Arena) Stats() Stats { a.mu.Lock(); defer a.mu.Unlock(); return a.st }

// Close unmaps the region. It fails, and unmaps nothing, while ranges are in use.
func (a *Arena) Close() error { return nil }

// Buf is a reference-counted range of an arena.
type Buf struct {
	a         *Arena
	mem       []byte
	refs      atomic.Int32
	committed atomic.Bool
}

// Bytes returns the range. It is written only between Reserve and Commit, and read only by holders of
// a reference.
func (b *Buf) Bytes() []byte { return b.mem }

// Len returns the size in bytes.
func (b *Buf) Len() int { return len(b.mem) }

// Truncate gives back the end of a range that is not committed yet.
func (b *Buf) Truncate(n int) { b.mem = b.mem[:n] }

// Commit makes the range final: from here on it is only read. The caller keeps its reference.
func (b *Buf) Commit() {
	if b.committed.CompareAndSwap(false, true) {
		b.a.mu.Lock()
		b.a.st.Reserved -= int64(cap(b.mem))
		b.a.st.Committed += int64(cap(b.mem))
		b.a.mu.Unlock()
	}
}

// Abort gives back a range that was never committed. It does nothing after Commit, so it can be
// deferred.
func (b *Buf) Abort() {
	if !b.committed.Load() {
		b.Release()
	}
}

// Retain adds a reference and returns b.
func (b *Buf) Retain() *Buf { b.refs.Add(1); return b }

// Release drops a reference; the last one gives the range back to the arena.
func (b *Buf) Release() {
	if b.refs.Add(-1) == 0 {
		b.a.mu.Lock()
		if b.committed.Load() {
			b.a.st.Committed -= int64(cap(b.mem))
		} else {
			b.a.st.Reserved -= int64(cap(b.mem))
		}
		b.a.mu.Unlock()
	}
}
