// SPDX-License-Identifier: Apache-2.0

package gguf

import (
	"encoding/binary"
	"math"
)

// decoders turn one stored block into float32. dst and src have the sizes of the type's block. The
// layouts are those of ggml's reference dequantisation.
var decoders = map[Type]func(dst []float32, src []byte){
	F32:  func(dst []float32, src []byte) { dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src)) },
	F16:  func(dst []float32, src []byte) { dst[0] = half(src) },
	Q4_0: decodeQ4_0,
	Q4_1: decodeQ4_1,
	Q8_0: decodeQ8_0,
	Q6_K: decodeQ6K,
}

// half reads a half-precision number.
func half(src []byte) float32 { return fromHalf(binary.LittleEndian.Uint16(src)) }

// decodeQ4_0: a scale, then 16 bytes of nibbles; low nibbles are the first half of the block.
func decodeQ4_0(dst []float32, src []byte) {
	d := half(src)
	for j, q := range src[2:18] {
		dst[j] = d * float32(int(q&15)-8)
		dst[j+16] = d * float32(int(q>>4)-8)
	}
}

// decodeQ4_1: a scale and a minimum, then nibbles as in Q4_0.
func decodeQ4_1(dst []float32, src []byte) {
	d, m := half(src), half(src[2:])
	for j, q := range src[4:20] {
		dst[j] = d*float32(q&15) + m
		dst[j+16] = d*float32(q>>4) + m
	}
}

// decodeQ8_0: a scale, then 32 signed bytes.
func decodeQ8_0(dst []float32, src []byte) {
	d := half(src)
	for j, q := range src[2:34] {
		dst[j] = d * float32(int8(q))
	}
}

// decodeQ6K: 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, and a scale of all.
// The block is two halves of 128 values; each byte of high bits serves four values 32 apart.
func decodeQ6K(dst []float32, src []byte) {
	low, high, scales, d := src[:128], src[128:192], src[192:208], half(src[208:])
	for range 2 {
		for l := range 32 {
			h := high[l]
			q := [4]byte{
				low[l]&15 | h&3<<4,
				low[l+32]&15 | h>>2&3<<4,
				low[l]>>4 | h>>4&3<<4,
				low[l+32]>>4 | h>>6&3<<4,
			}
			for k, v := range q {
				dst[l+32*k] = d * float32(int8(scales[l/16+2*k])) * float32(int(v)-32)
			}
		}
		dst, low, high, scales = dst[128:], low[64:], high[32:], scales[8:]
	}
}
