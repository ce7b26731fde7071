// SPDX-License-Identifier: Apache-2.0

package media

import (
	"image"
	"image/color"
)

// rowsOf returns a function that writes row y of m, counted from its top, as RGB. It knows every type
// that the four decoders produce; At, which allocates per pixel, serves whatever else may come.
//
// The decoders use the types with premultiplied alpha for opaque pictures only. studio selects the
// colour range of WebP. With opaque, alpha is ignored.
func rowsOf(m image.Image, bg [3]uint8, opaque, studio bool) func(dst []byte, y int) {
	switch m := m.(type) {
	case *image.YCbCr:
		return ycbcrRows(m, studio)
	case *image.NYCbCrA:
		return nycbcraRows(m, bg, opaque, studio)
	case *image.Gray:
		return grayRows(m.Pix, m.Stride, 1)
	case *image.Gray16:
		return grayRows(m.Pix, m.Stride, 2)
	case *image.RGBA:
		return interleavedRows(m.Pix, m.Stride, 1, bg, true)
	case *image.RGBA64:
		return interleavedRows(m.Pix, m.Stride, 2, bg, true)
	case *image.NRGBA:
		return interleavedRows(m.Pix, m.Stride, 1, bg, opaque)
	case *image.NRGBA64:
		return interleavedRows(m.Pix, m.Stride, 2, bg, opaque)
	case *image.Paletted:
		return palettedRows(m, bg, opaque)
	case *image.CMYK:
		return cmykRows(m)
	}
	return anyRows(m, bg, opaque)
}

// blend puts a channel value on a background with the rounding of Pillow, which vLLM's pictures go
// through: v*a + bg*(255-a), divided by 255 to the nearest.
func blend(v, bg, a uint8) uint8 {
	t := uint32(v)*uint32(a) + uint32(bg)*(255-uint32(a)) + 128
	return uint8((t + t>>8) >> 8)
}

// grayRows serves samples of the given width in bytes, high byte first.
func grayRows(pix []byte, stride, width int) func([]byte, int) {
	return func(dst []byte, y int) {
		src := pix[y*stride:]
		for i, j := 0, 0; i+2 < len(dst); i, j = i+3, j+width {
			v := src[j]
			dst[i], dst[i+1], dst[i+2] = v, v, v
		}
	}
}

// interleavedRows serves red, green, blue, alpha of the given width in bytes, high byte first.
func interleavedRows(pix []byte, stride, width int, bg [3]uint8, opaque bool) func([]byte, int) {
	return func(dst []byte, y int) {
		src := pix[y*stride:]
		for i := 0; i+2 < len(dst); i += 3 {
			s := src[: 4*width : 4*width]
			src = src[4*width:]
			r, g, b, a := s[0], s[width], s[2*width], s[3*width]
			if !opaque && a != 255 {
				r, g, b = blend(r, bg[0], a), blend(g, bg[1], a), blend(b, bg[2], a)
			}
			dst[i], dst[i+1], dst[i+2] = r, g, b
		}
	}
}

// palettedRows blends the palette once. Decoders refuse or extend for indexes over its end.
func palettedRows(m *image.Paletted, bg [3]uint8, opaque bool) func([]byte, int) {
	var table [256][3]uint8
	for i, c := range m.Palette[:min(len(m.Palette), 256)] {
		table[i] = flatten(c, bg, opaque)
	}
	return func(dst []byte, y int) {
		src := m.Pix[y*m.Stride:]
		for i, j := 0, 0; i+2 < len(dst); i, j = i+3, j+1 {
			c := &table[src[j]]
			dst[i], dst[i+1], dst[i+2] = c[0], c[1], c[2]
		}
	}
}

// cmykRows is color.CMYK's conversion, which is 255 minus ink, scaled by what black leaves.
func cmykRows(m *image.CMYK) func([]byte, int) {
	return func(dst []byte, y int) {
		src := m.Pix[y*m.Stride:]
		for i, j := 0, 0; i+2 < len(dst); i, j = i+3, j+4 {
			dst[i], dst[i+1], dst[i+2] = color.CMYKToRGB(src[j], src[j+1], src[j+2], src[j+3])
		}
	}
}

func anyRows(m image.Image, bg [3]uint8, opaque bool) func([]byte, int) {
	b := m.Bounds()
	return func(dst []byte, y int) {
		for x := range len(dst) / 3 {
			c := flatten(m.At(b.Min.X+x, b.Min.Y+y), bg, opaque)
			copy(dst[3*x:], c[:])
		}
	}
}

// flatten puts any colour on the background.
func flatten(c color.Color, bg [3]uint8, opaque bool) [3]uint8 {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	if opaque || n.A == 255 {
		return [3]uint8{n.R, n.G, n.B}
	}
	return [3]uint8{blend(n.R, bg[0], n.A), blend(n.G, bg[1], n.A), blend(n.B, bg[2], n.A)}
}
