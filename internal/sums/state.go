// SPDX-License-Identifier: Apache-2.0

package sums

import "encoding/binary"

// blockBytes is what one step of SHA-256 takes in.
const blockBytes = 64

// Size is the length of a sum.
const Size = 32

// state is what SHA-256 keeps from block to block: the words f e b a h g d c, in the order in which the instructions
// for it take them.
type state [8]uint32

var initial = state{0x9b05688c, 0x510e527f, 0xbb67ae85, 0x6a09e667, 0x5be0cd19, 0x1f83d9ab, 0xa54ff53a, 0x3c6ef372}

// order is where the words a to h stand.
var order = [8]int{3, 2, 7, 6, 1, 0, 5, 4}

// maxLanes is how many texts are taken in side by side.
const maxLanes = 4

// lanes are texts that are taken in side by side, each into a state of its own.
type lanes struct {
	states [maxLanes]*state
	texts  [maxLanes]*byte
}

// standIn takes the place of the processor's instructions, in tests where there are none.
var standIn func(l *lanes, together, n int)

// take takes n blocks of each of the first texts in, of which there are 1, 2 or 4. n is at least 1.
func (l *lanes) take(together, n int) {
	switch {
	case standIn != nil:
		standIn(l, together, n)
	case together == 4:
		four(l, n)
	case together == 2:
		two(l, n)
	default:
		one(l, n)
	}
}

// take takes the whole blocks of p in.
func (s *state) take(p []byte) {
	if n := len(p) / blockBytes; n > 0 {
		(&lanes{[maxLanes]*state{s}, [maxLanes]*byte{&p[0]}}).take(1, n)
	}
}

// sum ends a text of n bytes, of which rest was not taken in: less than a block.
func (s *state) sum(rest []byte, n uint64) (out [Size]byte) {
	var last [2 * blockBytes]byte
	copy(last[:], rest)
	last[len(rest)] = 0x80
	size := blockBytes
	if len(rest)+1+8 > blockBytes {
		size = 2 * blockBytes
	}
	binary.BigEndian.PutUint64(last[size-8:], 8*n)
	s.take(last[:size])
	for i, at := range order {
		binary.BigEndian.PutUint32(out[4*i:], s[at])
	}
	return out
}
