// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
)

// Admission says which embeddings are worth a place in the Store.
type Admission string

const (
	// Always publishes everything.
	Always Admission = "always"
	// SecondSighting publishes what was wanted twice of late, so that pictures seen once push nothing
	// out of the Store.
	SecondSighting Admission = "second-sighting"
)

// A sketch has sketchRows x sketchWidth counters, 256 KiB, whatever it is shown. A sighting adds 2 and
// every halveEvery sightings all counters are halved, so that a key is remembered for one such period at
// least and two at most when it does not come again. A key that was never shown is taken for a known one
// with a probability of at most (1-exp(-1/2))^4, 2.4 %.
const (
	sketchRows  = 4
	sketchWidth = 1 << 16
	halveEvery  = sketchWidth / 4
)

// sketch is a count-min sketch that forgets: it counts sightings of keys of late, sometimes too many and
// within halveEvery sightings never too few.
type sketch struct {
	counts    [sketchRows][sketchWidth]uint8
	sightings int // since the last halving
}

func newSketch() *sketch { return &sketch{} }

// sight counts a sighting and returns how many there were before; many are told as few.
func (s *sketch) sight(key embedding.Key) (before int) {
	sum := xxh3.HashString128(string(key))
	least := uint8(255)
	for r := range s.counts {
		least = min(least, *s.cell(r, sum))
	}
	// Raising only what is below leaves the counters of other keys alone as far as possible.
	raised := min(least, 253) + 2
	for r := range s.counts {
		c := s.cell(r, sum)
		*c = max(*c, raised)
	}
	if s.sightings++; s.sightings >= halveEvery {
		s.halve()
	}
	return (int(least) + 1) / 2
}

func (s *sketch) cell(row int, sum xxh3.Uint128) *uint8 {
	return &s.counts[row][(sum.Lo+uint64(row)*(sum.Hi|1))%sketchWidth]
}

func (s *sketch) halve() {
	s.sightings = 0
	for r := range s.counts {
		row := &s.counts[r]
		for i := range row {
			row[i] /= 2
		}
	}
}
