// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"encoding/binary"
	"fmt"
)

// finiteBlock is how many bytes CheckFinite scans between two looks at the result: large enough that
// the look costs nothing, small enough to find the culprit in no time.
const finiteBlock = 4096

// CheckFinite reports the first element of payload that is NaN or infinite (ErrNotFinite), or a length
// that is no whole number of elements of d (ErrMalformed).
func CheckFinite(payload []byte, d DType) error {
	size := d.Bytes()
	if size == 0 || len(payload)%size != 0 {
		return malformed("payload of %d bytes of %v", len(payload), d)
	}
	exponent, one := finiteMasks(d)
	for off := 0; off < len(payload); off += finiteBlock {
		block := payload[off:min(off+finiteBlock, len(payload))]
		if allFinite(block, exponent, one) {
			continue
		}
		for i := 0; i < len(block); i += size {
			if !allFinite(block[i:i+size], exponent, one) {
				return fmt.Errorf("%w: element %d is % x (%v, little endian)", ErrNotFinite, (off+i)/size, block[i:i+size], d)
			}
		}
	}
	return nil
}

// finiteMasks returns, repeated in every lane of a word, the exponent bits of d and the lowest of
// them.
func finiteMasks(d DType) (exponent, one uint64) {
	switch d {
	case Float32:
		return 0x7f800000_7f800000, 0x00800000_00800000
	case Float16:
		return 0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400
	default: // BFloat16
		return 0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080
	}
}

// allFinite tests eight bytes at a time. A value is not finite when its exponent is all ones; adding
// the lowest exponent bit to the bare exponent then carries into the lane's sign bit and never
// further, so sums of many words can be ORed and looked at once.
func allFinite(b []byte, exponent, one uint64) bool {
	signs := exponent + one // all-ones exponents carry: this is the sign bit of each lane
	var acc0, acc1, acc2, acc3 uint64
	le := binary.LittleEndian
	for ; len(b) >= 32; b = b[32:] {
		acc0 |= le.Uint64(b)&exponent + one
		acc1 |= le.Uint64(b[8:])&exponent + one
		acc2 |= le.Uint64(b[16:])&exponent + one
		acc3 |= le.Uint64(b[24:])&exponent + one
	}
	for ; len(b) >= 8; b = b[8:] {
		acc0 |= le.Uint64(b)&exponent + one
	}
	if len(b) > 0 { // a zero is finite, so padding with zeros changes nothing
		var tail [8]byte
		copy(tail[:], b)
		acc1 |= le.Uint64(tail[:])&exponent + one
	}
	return (acc0|acc1|acc2|acc3)&signs == 0
}
