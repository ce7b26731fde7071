// SPDX-License-Identifier: Apache-2.0

package gguf

import "math"

// fromHalf widens a half-precision number. It is exact.
func fromHalf(h uint16) float32 {
	sign, exp, man := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&0x3ff)
	switch exp {
	case 0: // zero or subnormal: man x 2^-24
		return math.Float32frombits(math.Float32bits(float32(man)/(1<<24)) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// toHalf rounds to the nearest half-precision number, ties to even. Values beyond the range become
// infinite.
func toHalf(f float32) uint16 {
	const (
		infinity  = 0x7f800000
		overflow  = (127 + 16) << 23 // 65536, the first power of two beyond the range
		normal    = (127 - 14) << 23 // smallest normal half
		magicHalf = 0.5              // float32 with ulp 2^-24, the step of subnormal halves
	)
	b := math.Float32bits(f)
	sign, b := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case b > infinity:
		return sign | 0x7e00 // NaN
	case b >= overflow:
		return sign | 0x7c00
	case b < normal: // let the addition round to the subnormal step
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+magicHalf)-math.Float32bits(magicHalf))
	}
	b += 0xfff + b>>13&1 // round half to even in place; a carry moves the exponent, as it must
	return sign | uint16(b>>13-112<<10)
}
