// SPDX-License-Identifier: Apache-2.0

package arena

import "fmt"

// Reserve takes n bytes, aligned to 64. What they hold is undefined. The caller owns the one reference
// of the Buf: it fills Bytes, then calls Commit and later Release, or Abort. Reserve never waits:
// errors wrap ErrFull, ErrTooLarge or ErrClosed.
func (a *Arena) Reserve(n int) (*Buf, error) {
	if err := a.checkReserve(n, 0); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	b, err := a.takeLocked(n)
	if err == nil {
		a.handOutLocked(b)
	}
	return b, err
}

// ReserveAll does Reserve for each of sizes, or for none. A failure leaves no trace: nobody else finds the
// arena full meanwhile, and nobody who waits for Freed is woken.
func (a *Arena) ReserveAll(sizes []int) ([]*Buf, error) {
	total := int64(0)
	for _, n := range sizes {
		if err := a.checkReserve(n, total); err != nil {
			return nil, err
		}
		total += roundUp(int64(n))
	}
	out := make([]*Buf, 0, len(sizes))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	for _, n := range sizes {
		b, err := a.takeLocked(n)
		if err != nil {
			for _, b := range out {
				a.free.put(b.span)
			}
			return nil, err
		}
		out = append(out, b)
	}
	for _, b := range out {
		a.handOutLocked(b)
	}
	return out, nil
}

// checkReserve refuses n bytes that no arena of this size has, beside others that are wanted together.
func (a *Arena) checkReserve(n int, others int64) error {
	if n <= 0 {
		return fmt.Errorf("arena: cannot reserve %d bytes, want at least 1", n)
	}
	if int64(n) > a.st.Capacity-others { // Capacity never changes
		return fmt.Errorf("%w: %d bytes of %d", ErrTooLarge, int64(n)+others, a.st.Capacity)
	}
	return nil
}

// takeLocked cuts n bytes out of what is free. They count for nothing before handOutLocked.
func (a *Arena) takeLocked(n int) (*Buf, error) {
	size := roundUp(int64(n))
	span, off, ok := a.free.take(size)
	if !ok {
		return nil, fmt.Errorf("%w: %d bytes wanted, %d of %d in use, largest free range %d",
			ErrFull, n, a.st.inUse(), a.st.Capacity, a.free.largest())
	}
	return &Buf{a: a, off: off, size: size, span: span, mem: a.region.mem[off : off+int64(n) : off+int64(n)]}, nil
}

// handOutLocked makes the caller of Reserve the owner of b.
func (a *Arena) handOutLocked(b *Buf) {
	a.debug.checkFreed(a.region.mem, b.off, b.size)
	a.ranges++
	a.st.Reserved += b.size
	a.st.Peak = max(a.st.Peak, a.st.inUse())
	b.refs.Store(1)
	b.note("reserve")
	a.debug.add(b)
}
