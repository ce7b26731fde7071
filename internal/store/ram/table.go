// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"fmt"
	"sync/atomic"

	"afterimage/internal/arena"
)

const (
	tableSlots   = 1024
	tableTouches = 1024

	topWord     = 0
	touchesWord = 1
	missesWord  = 2
	slotWords   = 8
	touchWords  = slotWords + tableSlots
	tableWords  = touchWords + 2*tableTouches
	tableBytes  = 8 * tableWords
)

// newTable makes an empty table.
func newTable() (words[uint64], error) { return newWords[uint64]("pins", tableBytes) }

// openTable reads the table that a client showed, all of m.
func openTable(m *arena.Mapping) (words[uint64], error) {
	if m.Size() != tableBytes {
		return words[uint64]{}, fmt.Errorf("%w: table of %d bytes, want %d", errProtocol, m.Size(), tableBytes)
	}
	return viewWords[uint64](m)
}

// account is what the Store knows of a client's table. shelf.mu guards it.
//
// The table is memory of the client that the Store maps read-only. All words are 64 bits:
//
//	0     slots in use are below this number
//	1     touches so far: objects pinned, since the table was made
//	2     GETs that were answered with a miss without a call
//	8     1024 slots: 0, or a pin id with the number of the allowance under which it was taken
//	1032  1024 touches, a ring of pin id and time in ns since 1970
type account struct {
	words[uint64]
	place   int    // in the index
	number  uint64 // of the allowance in force; 16 bits
	allowed int64  // bytes of that
	pinned  int64  // bytes of pins
	alone   int64  // of these, those of objects that have no other loan
	pins    [tableSlots]*loan
	seen    [tableSlots]uint64 // the words that pins are of
	known   int                // above it, seen is 0
	touches uint64             // taken note of
	misses  uint64             // likewise
}

// touch is a hit that a client had without asking.
type touch struct{ id, at uint64 }

// load reads a word of the table.
func (a *account) load(i int) uint64 { return atomic.LoadUint64(&a.w[i]) }

// slot reads a slot. Above the top there is nothing.
func (a *account) slot(i, top int) uint64 {
	if i >= top {
		return 0
	}
	return a.load(slotWords + i)
}

// news returns what the client counted since the last time: hits, of which the touches in the ring are
// appended to out, and misses. Counts that make no sense are none.
func (a *account) news(out []touch) (_ []touch, hits, misses uint64) {
	const sane = 1 << 40
	total := a.load(touchesWord)
	if hits = total - a.touches; hits > sane {
		hits = 0
	}
	for at := total - min(hits, tableTouches); at != total && hits > 0; at++ {
		i := touchWords + 2*int(at%tableTouches)
		out = append(out, touch{id: a.load(i) & belowNumber, at: a.load(i + 1)})
	}
	a.touches = total
	count := a.load(missesWord)
	if misses = count - a.misses; misses > sane {
		misses = 0
	}
	a.misses = count
	return out, hits, misses
}
