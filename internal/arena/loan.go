// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNotShared: the memory of this arena cannot be shown to another process, or what was received is
// not the memory of an arena. Copy instead.
var ErrNotShared = errors.New("arena: memory cannot be shared")

// Share returns a read-only descriptor of the whole arena, for a neighbour on the host to pass to
// MapShared. The caller closes it, at any time: mappings made from it stay. Race builds on Go memory
// have nothing to share: ErrNotShared.
func (a *Arena) Share() (*os.File, error) {
	if a.region.file == nil {
		return nil, fmt.Errorf("%w: %q is Go memory in a race build", ErrNotShared, a.cfg.Name)
	}
	// A duplicate would carry the right to write; opening afresh leaves it behind.
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", a.region.file.Fd()), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: reopen %q: %w", ErrNotShared, a.cfg.Name, err)
	}
	return f, nil
}

// Mapping is a read-only view of another arena, mostly one of another process. The lender may die: its
// memory lives as long as the view.
type Mapping struct {
	mem  []byte
	stop chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	bufs   int        // on loan
	closed bool
}

// MapShared maps what Share returned in the lender, of bytes as the lender told. It keeps no hold of
// f. It refuses, with ErrNotShared, a file that could shrink under a reader or has another size.
func MapShared(f *os.File, bytes int64) (*Mapping, error) {
	got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %s has no seals: %w", ErrNotShared, f.Name(), err)
	}
	if got&seals != seals {
		return nil, fmt.Errorf("%w: %s has seals %#x, want %#x: its size could change", ErrNotShared, f.Name(), got, seals)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotShared, err)
	}
	if bytes <= 0 || st.Size() != bytes {
		return nil, fmt.Errorf("%w: %s has %d bytes, the lender says %d", ErrNotShared, f.Name(), st.Size(), bytes)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%w: map %d bytes: %w", ErrNotShared, bytes, err)
	}
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP)
	m := &Mapping{mem: mem, stop: make(chan struct{})}
	m.wg.Go(func() { follow(mem, m.stop) })
	return m, nil
}

// Size returns the bytes of the lender's arena.
func (m *Mapping) Size() int64 { return int64(len(m.mem)) }

// Buf returns a committed Buf over [off, off+n) of the lender's arena, of which the caller owns the
// one reference. The last Release calls release, which may be nil, must not block, and runs on the
// goroutine that drops the reference. off and n may be hostile; a range that is not within the mapping
// is an error. After Close the error wraps ErrClosed.
func (m *Mapping) Buf(off, n int64, release func()) (*Buf, error) {
	if off < 0 || n <= 0 || off > int64(len(m.mem)) || n > int64(len(m.mem))-off {
		return nil, fmt.Errorf("arena: loan of %d bytes at %d, the lender has %d", n, off, len(m.mem))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	m.bufs++
	both := &struct { // one allocation
		Buf
		lent
	}{lent: lent{m: m, release: release}}
	b := &both.Buf
	b.off, b.size, b.mem, b.lent = off, n, m.mem[off:off+n:off+n], &both.lent
	b.refs.Store(1)
	b.committed.Store(true)
	b.note("loan")
	return b, nil
}

// Close gives up the mapping: there are no further loans, and the memory is unmapped once the last
// Buf is back. A second Close does nothing.
func (m *Mapping) Close() error {
	m.mu.Lock()
	again := m.closed
	m.closed = true
	last := m.bufs == 0
	m.mu.Unlock()
	if again {
		return nil
	}
	close(m.stop)
	m.wg.Wait()
	if last {
		return unix.Munmap(m.mem)
	}
	return nil
}

// drop counts one Buf back.
func (m *Mapping) drop() {
	m.mu.Lock()
	m.bufs--
	last := m.bufs == 0 && m.closed
	m.mu.Unlock()
	if last {
		m.wg.Wait()            // Close may still be waiting for it, too
		_ = unix.Munmap(m.mem) // fails for a range that is no mapping only
	}
}

// lent is what a Buf over foreign memory has beside a range.
type lent struct {
	m       *Mapping
	release func()

	mu       sync.Mutex // guards the fields below
	recalled bool
	hooks    map[int]func()
	next     int
}

// giveBack ends the loan.
func (l *lent) giveBack() {
	if l.release != nil {
		l.release()
	}
	l.m.drop()
}

// Foreign says whether the Buf lies in memory of another arena, so that holding on to it costs the
// lender, and its Offset is one in the lender's arena.
func (b *Buf) Foreign() bool { return b.lent != nil }

// OnRecall has f called, once and on a goroutine of its own choosing, when the lender asks for the
// range back; at once if it has asked already. f should see to it that references that no request
// needs are released soon. It must be ready to run after the returned function, which ends the
// interest, was called. Own memory is never recalled.
func (b *Buf) OnRecall(f func()) (stop func()) {
	l := b.lent
	if l == nil {
		return func() {}
	}
	l.mu.Lock()
	if l.recalled {
		l.mu.Unlock()
		f()
		return func() {}
	}
	defer l.mu.Unlock()
	if l.hooks == nil {
		l.hooks = make(map[int]func())
	}
	id := l.next
	l.next++
	l.hooks[id] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.hooks, id)
	}
}

// Recall tells those who asked by OnRecall that the lender wants the range back, and waits for them.
// It may be called by one who holds no reference.
func (b *Buf) Recall() {
	l := b.lent
	if l == nil {
		return
	}
	l.mu.Lock()
	l.recalled = true
	hooks := l.hooks
	l.hooks = nil
	l.mu.Unlock()
	for _, f := range hooks {
		f()
	}
}

// Recalled says whether the lender wants the range back.
func (b *Buf) Recalled() bool {
	if b.lent == nil {
		return false
	}
	b.lent.mu.Lock()
	defer b.lent.mu.Unlock()
	return b.lent.recalled
}
