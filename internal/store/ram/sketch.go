// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// sketch tells for sure that a key is not in the Store, without asking it: a counting Bloom filter in
// memory of its own that every client maps read-only. A key owns four of the 64 counters of one cache
// line; a line is the unit of a look-up. Each counter is a byte that says how many stored keys own it,
// so that keys can leave. A byte that reaches 255 stays there, which errs on the safe side.
//
// One writer, under the shelf's lock, stores whole words; readers in all processes load them. A key is
// added before its PUT is answered and removed when it can no longer be found, so a reader who sees a
// zero among its counters knows that no PUT of it had completed, unless the object left again.
type sketch struct {
	words[uint32]      // 16 to a line
	full          bool // a counter is stuck at 255
}

const (
	lineWords = 16
	keyMarks  = 4
	// Bytes of a sketch for a Store of one: an object of 64 KiB then has a line of its own.
	sketchShare    = 1024
	minSketchBytes = 64 << 10
	maxSketchBytes = 64 << 20
	stuck          = 255
)

// sketchBytes returns the size of the sketch for a Store: a power of two.
func sketchBytes(limit int64) int64 {
	n := min(max(limit/sketchShare, minSketchBytes), maxSketchBytes)
	return 1 << bits.Len64(uint64(n-1))
}

// newSketch makes the empty sketch of a Store.
func newSketch(limit int64) (*sketch, error) {
	w, err := newWords[uint32]("sketch", sketchBytes(limit))
	if err != nil {
		return nil, err
	}
	return &sketch{words: w}, nil
}

// openSketch reads the sketch that a Store lent, all of m.
func openSketch(m *arena.Mapping) (*sketch, error) {
	n := m.Size()
	if n < minSketchBytes || n > maxSketchBytes || n&(n-1) != 0 {
		return nil, fmt.Errorf("%w: sketch of %d bytes, want a power of two from %d to %d", errProtocol, n, minSketchBytes, maxSketchBytes)
	}
	w, err := viewWords[uint32](m)
	if err != nil {
		return nil, err
	}
	return &sketch{words: w}, nil
}

// marks returns the line of a key and its counters in there, 0 to 63.
func (s *sketch) marks(h xxh3.Uint128) (line []uint32, at [keyMarks]uint8) {
	i := int(h.Hi&uint64(len(s.w)/lineWords-1)) * lineWords
	for m := range at {
		at[m] = uint8(h.Lo>>(6*m)) & 63
	}
	return s.w[i : i+lineWords : i+lineWords], at
}

// hashOf is what sketch and index find keys by.
func hashOf(k embedding.Key) xxh3.Uint128 { return xxh3.HashString128(string(k)) }

// add counts a key in. A nil sketch keeps nothing.
func (s *sketch) add(k embedding.Key) { s.count(k, 1) }

// remove counts a key out that was counted in.
func (s *sketch) remove(k embedding.Key) { s.count(k, -1) }

func (s *sketch) count(k embedding.Key, d int) {
	if s == nil {
		return
	}
	line, at := s.marks(hashOf(k))
	for _, m := range at {
		w, shift := &line[m/4], 8*(m%4)
		v := atomic.LoadUint32(w)
		n := int(v>>shift) & stuck
		if n == stuck {
			continue
		}
		if n += d; n == stuck {
			s.full = true
		}
		atomic.StoreUint32(w, v&^(stuck<<shift)|uint32(n)<<shift)
	}
}

// absent reports that the key with this hash was for sure not stored at some moment during the call.
func (s *sketch) absent(h xxh3.Uint128) bool {
	line, at := s.marks(h)
	for _, m := range at {
		if atomic.LoadUint32(&line[m/4])>>(8*(m%4))&stuck == 0 {
			return true
		}
	}
	return false
}
