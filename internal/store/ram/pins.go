// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"os"
	"sync/atomic"

	"afterimage/internal/arena"
)

// pins is the client's side of pinning: the Store's index, and a table of its own. link.mu guards it. A nil
// pins pins nothing.
type pins struct {
	table   words[uint64]
	index   *index // nil once the Store is gone
	place   int
	slots   [tableSlots]slot
	low     int   // no slot below it is free
	top     int   // no slot from here on was ever used
	n       int   // slots in use
	bytes   int64 // of them
	touches uint64
	misses  uint64
	step    func(string) // between the steps of pinning, in tests; nil is nothing
}

// slot is a word of the table, and what it pins.
type slot struct {
	id       uint64
	buf      *arena.Buf // nil while the slot is free
	bytes    int64
	recalled bool
	release  func() // of buf; made once
}

// newPins makes a table, and a descriptor of it to show to a Store; nil where there is no memory for that.
func newPins() (*pins, *os.File) {
	t, err := newTable()
	if err != nil {
		return nil, nil
	}
	f, err := t.mem.Share()
	if err != nil {
		_ = t.close() // no pins either way
		return nil, nil
	}
	return &pins{table: t}, f
}

// with adds what the Store showed, if that was enough to pin anything.
func (p *pins) with(x *index, place uint64) *pins {
	if p == nil || x == nil || place >= places {
		p.close()
		if x != nil {
			_ = x.close() // a view: nothing that could fail
		}
		return nil
	}
	p.index, p.place = x, int(place)
	return p
}

// close gives the table back. Nothing is pinned.
func (p *pins) close() {
	if p != nil && p.table.buf != nil {
		_ = p.table.close() // nobody else has a range of it
		p.table.buf = nil
	}
}

// blind ends the use of the index: the Store is gone. The table goes with the last pin.
func (p *pins) blind() {
	if p == nil {
		return
	}
	if p.index != nil {
		_ = p.index.close() // a view: nothing that could fail
		p.index = nil
	}
	if p.n == 0 {
		p.close()
	}
}

func (p *pins) count() int {
	if p == nil {
		return 0
	}
	return p.n
}

// all appends all Bufs that pin something.
func (p *pins) all(bufs []*arena.Buf) []*arena.Buf {
	if p == nil {
		return bufs
	}
	for i := range p.top {
		if b := p.slots[i].buf; b != nil {
			bufs = append(bufs, b)
		}
	}
	return bufs
}

// recalled marks a pin that the Store wants back; nil when it has gone back already.
func (p *pins) recalled(number uint64) *arena.Buf {
	if p == nil {
		return nil
	}
	s := &p.slots[number>>pinSlotShift&(tableSlots-1)]
	if s.buf == nil || s.id != number&belowNumber {
		return nil
	}
	s.recalled = true
	return s.buf
}

// set writes a word of the table.
func (p *pins) set(i int, v uint64) { atomic.StoreUint64(&p.table.w[i], v) }

func (p *pins) pause(where string) {
	if p.step != nil {
		p.step(where)
	}
}

// free returns the lowest free slot, or -1. The Store looks at those below the top.
func (p *pins) free() int {
	for i := p.low; i < tableSlots; i++ {
		if p.slots[i].buf != nil {
			continue
		}
		if p.low = i; i >= p.top {
			p.top = i + 1
			p.set(topWord, uint64(p.top))
		}
		return i
	}
	p.low = tableSlots
	return -1
}

// touch tells the Store of a hit, and reports whether it should look before the ring is full.
func (p *pins) touch(id uint64, now int64) (look bool) {
	i := touchWords + 2*int(p.touches%tableTouches)
	p.set(i, id)
	p.set(i+1, uint64(now))
	p.touches++
	p.set(touchesWord, p.touches)
	return p.touches-atomic.LoadUint64(p.index.heard(p.place)) > tableTouches*3/4
}
