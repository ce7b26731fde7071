// SPDX-License-Identifier: Apache-2.0

package media

import "image"

// ycbcrRows serves luma and chroma planes. JPEG samples span 0 to 255 and convert as image/color
// does. WebP samples are BT.601 studio range, luma 16 to 235, and convert as libwebp does;
// golang.org/x/image hands them out in the same image type, unscaled.
//
// Chroma is repeated, not interpolated, over the pixels that share it.
func ycbcrRows(m *image.YCbCr, studio bool) func([]byte, int) {
	convert := fullRange
	if studio {
		convert = studioRange
	}
	var shift uint
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420:
		shift = 1
	case image.YCbCrSubsampleRatio411, image.YCbCrSubsampleRatio410:
		shift = 2
	}
	at := m.Rect.Min
	return func(dst []byte, y int) {
		yo, co := m.YOffset(at.X, at.Y+y), m.COffset(at.X, at.Y+y)
		convert(dst, m.Y[yo:], m.Cb[co:], m.Cr[co:], shift)
	}
}

func nycbcraRows(m *image.NYCbCrA, bg [3]uint8, opaque, studio bool) func([]byte, int) {
	row := ycbcrRows(&m.YCbCr, studio)
	if opaque {
		return row
	}
	return func(dst []byte, y int) {
		row(dst, y)
		alpha := m.A[y*m.AStride:]
		for i, j := 0, 0; i+2 < len(dst); i, j = i+3, j+1 {
			if a := alpha[j]; a != 255 {
				dst[i], dst[i+1], dst[i+2] = blend(dst[i], bg[0], a), blend(dst[i+1], bg[1], a), blend(dst[i+2], bg[2], a)
			}
		}
	}
}

// fullRange is color.YCbCrToRGB in 16.16 fixed point.
func fullRange(dst, luma, cb, cr []byte, shift uint) {
	for i, x := 0, 0; i+2 < len(dst); i, x = i+3, x+1 {
		y := int32(luma[x]) * 0x10101
		b, r := int32(cb[x>>shift])-128, int32(cr[x>>shift])-128
		dst[i] = clamp(y+91881*r, 16)
		dst[i+1] = clamp(y-22554*b-46802*r, 16)
		dst[i+2] = clamp(y+116130*b, 16)
	}
}

// studioRange uses the constants of libwebp's yuv.h: 14 fractional bits, of which 8 are dropped after
// the multiplication.
func studioRange(dst, luma, cb, cr []byte, shift uint) {
	for i, x := 0, 0; i+2 < len(dst); i, x = i+3, x+1 {
		y := int32(luma[x]) * 19077 >> 8
		b, r := int32(cb[x>>shift]), int32(cr[x>>shift])
		dst[i] = clamp(y+r*26149>>8-14234, 6)
		dst[i+1] = clamp(y-b*6419>>8-r*13320>>8+8708, 6)
		dst[i+2] = clamp(y+b*33050>>8-17685, 6)
	}
}

// clamp drops the fraction of v and limits the rest to a byte.
func clamp(v int32, fraction uint) byte {
	v >>= fraction
	if uint32(v) > 255 {
		return byte(^(v >> 31)) // 0 below, 255 above
	}
	return byte(v)
}
