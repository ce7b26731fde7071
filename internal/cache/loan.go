// SPDX-License-Identifier: Apache-2.0

package cache

import "afterimage/internal/arena"

// listen has a recall of the entry's loan reach the cache. The entry may have left already.
func (c *Cache) listen(e *entry) {
	deaf := e.buf.OnRecall(func() { c.recalled(e) }) // may call back at once, so no lock is held
	c.mu.Lock()
	if el, ok := c.entries[e.key]; ok && el.Value == any(e) && e.loan != nil {
		e.deaf = deaf
		deaf = func() {}
	}
	c.mu.Unlock()
	deaf()
}

// recalled lets go of a loan: a copy takes its place where the arena has room. Those who hold the Buf
// for a request go on reading the loan.
func (c *Cache) recalled(e *entry) {
	buf := c.holdLoan(e)
	if buf == nil {
		return
	}
	defer buf.Release()
	mine := c.copyOf(buf)

	c.mu.Lock()
	el, ok := c.entries[e.key]
	if !ok || el.Value != any(e) {
		c.mu.Unlock()
		if mine != nil {
			mine.Release()
		}
		return
	}
	var out []*entry
	if mine != nil {
		c.st.Copied++
		c.st.Foreign -= int64(buf.Len())
		c.foreign.Remove(e.loan)
		e.loan, e.deaf = nil, nil
		e.buf, mine = mine, e.buf
	} else {
		c.st.Recalled++
		out = append(out, c.dropLocked(el))
	}
	c.mu.Unlock()
	release(out)
	if mine != nil {
		mine.Release() // the reference of the loan, by now
	}
}

// holdLoan returns the loan of an entry that is still in the cache, with a reference, or nil.
func (c *Cache) holdLoan(e *entry) *arena.Buf {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.entries[e.key]; !ok || el.Value != any(e) || e.loan == nil {
		return nil
	}
	return e.buf.Retain()
}

// copyOf returns a committed copy in the cache's arena, or nil. It evicts nothing: who asks for the
// loan is waiting, and a miss later costs one read.
func (c *Cache) copyOf(b *arena.Buf) *arena.Buf {
	if c.arena == nil {
		return nil
	}
	mine, err := c.arena.Reserve(b.Len())
	if err != nil {
		return nil
	}
	arena.Copy(mine.Bytes(), b.Bytes())
	mine.Commit()
	return mine
}
