// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Convert writes the values of src, elements of type from, to dst as elements of type to, rounded to the
// nearest, ties to even. Both are little endian; dst has room for exactly as many values. Values that
// are too large for float16 become infinite: CheckFinite tells.
func Convert(dst []byte, to DType, src []byte, from DType) error {
	if from.Bytes() == 0 || to.Bytes() == 0 {
		return fmt.Errorf("embedding: cannot convert dtype %v to %v", from, to)
	}
	n := len(src) / from.Bytes()
	if n*from.Bytes() != len(src) || n*to.Bytes() != len(dst) {
		return fmt.Errorf("embedding: %d bytes of %v do not become %d bytes of %v", len(src), from, len(dst), to)
	}
	switch {
	case from == to:
		copy(dst, src)
	case from == Float32 && to == BFloat16:
		for i := range n {
			binary.LittleEndian.PutUint16(dst[2*i:], bfloat16Bits(binary.LittleEndian.Uint32(src[4*i:])))
		}
	case from == BFloat16 && to == Float32:
		for i := range n {
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(binary.LittleEndian.Uint16(src[2*i:]))<<16)
		}
	default:
		for i := range n {
			storeFloat(dst[to.Bytes()*i:], to, loadFloat(src[from.Bytes()*i:], from))
		}
	}
	return nil
}

func loadFloat(b []byte, d DType) float32 {
	switch d {
	case Float16:
		return float16Value(binary.LittleEndian.Uint16(b))
	case BFloat16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

func storeFloat(b []byte, d DType, v float32) {
	switch d {
	case Float16:
		binary.LittleEndian.PutUint16(b, float16Bits(v))
	case BFloat16:
		binary.LittleEndian.PutUint16(b, bfloat16Bits(math.Float32bits(v)))
	default:
		binary.LittleEndian.PutUint32(b, math.Float32bits(v))
	}
}

// bfloat16Bits rounds the bits of a float32. A NaN stays one.
func bfloat16Bits(b uint32) uint16 {
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// float16Bits rounds v to float16.
func float16Bits(v float32) uint16 {
	b := math.Float32bits(v)
	sign, mag := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case mag > 0x7f800000: // NaN
		return sign | 0x7e00
	case mag >= 0x477ff000: // rounds beyond 65504
		return sign | 0x7c00
	case mag < 0x38800000: // subnormal: the sum rounds to steps of 2^-24, which its low bits then count
		return sign | uint16(math.Float32bits(math.Float32frombits(mag)+0.5)-math.Float32bits(0.5))
	}
	mag += 0xfff + mag>>13&1
	return sign | uint16(mag>>13-(127-15)<<10)
}

// float16Value returns the value of a float16.
func float16Value(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0:
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(v))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}
