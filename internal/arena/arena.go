// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

var (
	// ErrFull: no room at this moment; a later try may succeed.
	ErrFull = errors.New("arena: full")
	// ErrTooLarge: larger than the arena ever holds; no retry helps.
	ErrTooLarge = errors.New("arena: larger than the arena")
	// ErrClosed: the arena is closed.
	ErrClosed = errors.New("arena: closed")
)

// align is the granularity of ranges in bytes: a cache line, and what the a1 format wants of payloads.
const align = 64

// Config sizes an arena.
type Config struct {
	Name  string // shows in /proc/<pid>/maps and in metrics; at most 200 bytes
	Bytes int64  // capacity, rounded up to a multiple of 64
	// Mapped asks for a memfd in race builds too, for the sake of Share. The race detector then does
	// not watch what the ranges hold.
	Mapped bool
}

// Stats is a snapshot of an arena's use. All figures are bytes, ranges rounded up to 64.
type Stats struct {
	Capacity    int64
	Reserved    int64 // handed out, not yet committed
	Committed   int64
	Quarantined int64 // kept from use by Quarantine; counted neither as reserved nor as committed
	Peak        int64 // most bytes handed out or quarantined at once since start
	Largest     int64 // largest range that Reserve can give at this moment
}

// Arena hands out ranges of one region. All methods may be called from any goroutine.
type Arena struct {
	cfg    Config
	region *region // set once

	mu         sync.Mutex // guards the fields below
	free       freeList
	st         Stats // Largest is computed on demand
	ranges     int   // handed out, isolated ones included
	isolated   int   // ranges in quarantine
	quarantine map[Token]quarantined
	lastToken  Token
	closed     bool          // hands out nothing more
	unmapped   bool          // the region is gone
	freed      chan struct{} // closed when a range comes back; nil while nobody asked
	debug      tracker
}

// New maps an arena. It fails when cfg.Bytes is not positive, or exceeds the memory of the machine or
// of the process's cgroup.
func New(cfg Config) (*Arena, error) {
	if cfg.Bytes <= 0 {
		return nil, fmt.Errorf("arena: size of %d bytes, want at least 1", cfg.Bytes)
	}
	if err := checkSize(cfg.Bytes); err != nil {
		return nil, err
	}
	capacity := roundUp(cfg.Bytes)
	r, err := newRegion(cfg, capacity)
	if err != nil {
		return nil, fmt.Errorf("arena: map %d bytes: %w", capacity, err)
	}
	a := &Arena{cfg: cfg, region: r, st: Stats{Capacity: capacity}, quarantine: make(map[Token]quarantined)}
	a.free.reset(capacity)
	return a, nil
}

// Freed returns a channel that is closed when memory comes back next, or when the arena closes. Ask
// for it before a Reserve or ReserveAll that may fail, then wait on it: nothing that comes back in between
// is missed.
func (a *Arena) Freed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.freed == nil {
		a.freed = make(chan struct{})
		if a.closed {
			close(a.freed)
		}
	}
	return a.freed
}

// Stats returns the use at this moment.
func (a *Arena) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.st
	st.Largest = a.free.largest()
	return st
}

// File returns the memfd behind the arena, which is writable; nil for Go memory. It belongs to the
// arena, which closes it. What neighbours get is Share.
func (a *Arena) File() *os.File { return a.region.file }

// Close unmaps the region. It fails, and changes nothing, while ranges are in use. With ranges in
// quarantine it hands out nothing more, but leaves the region mapped and says so with ErrQuarantined;
// another Close after they were reclaimed unmaps it. A Close after that does nothing.
func (a *Arena) Close() error { return a.close(false) }

// Detach does Close, and unmaps the region though ranges are in quarantine. It is for memory that
// only other processes may still use, through mappings of their own, which stay.
func (a *Arena) Detach() error { return a.close(true) }

func (a *Arena) close(detach bool) error {
	a.mu.Lock()
	if held := a.ranges - a.isolated; held > 0 {
		defer a.mu.Unlock()
		return fmt.Errorf("arena: cannot close %q: %d ranges of %d bytes are in use%s",
			a.cfg.Name, held, a.st.Reserved+a.st.Committed, a.debug.holders())
	}
	a.closed = true
	a.wakeLocked()
	if a.isolated > 0 && !detach && !a.unmapped {
		defer a.mu.Unlock()
		return a.staysMappedLocked()
	}
	again := a.unmapped
	a.unmapped = true
	a.mu.Unlock()
	if again {
		return nil
	}
	return a.region.close()
}

// giveBack returns a range to the free list and takes it off the counter that held it.
func (a *Arena) giveBack(b *Buf) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b.committed.Load() {
		a.st.Committed -= b.size
	} else {
		a.st.Reserved -= b.size
	}
	a.ranges--
	a.poisonLocked(b.off, b.size)
	a.free.put(b.span)
	a.wakeLocked()
}

// shorten gives back what a range that is not committed has beyond its first keep bytes.
func (a *Arena) shorten(b *Buf, keep int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	tail := b.size - keep
	b.size = keep
	a.st.Reserved -= tail
	a.poisonLocked(b.off+keep, tail)
	a.free.shrink(b.span, keep)
	a.wakeLocked()
}

func (a *Arena) poisonLocked(off, size int64) {
	if !a.unmapped {
		a.debug.poison(a.region.mem, off, size)
	}
}

func (a *Arena) wakeLocked() {
	if a.freed != nil {
		close(a.freed)
		a.freed = nil
	}
}

// inUse returns the bytes that Reserve cannot give.
func (s Stats) inUse() int64 { return s.Reserved + s.Committed + s.Quarantined }

func roundUp(n int64) int64 { return (n + align - 1) &^ (align - 1) }
