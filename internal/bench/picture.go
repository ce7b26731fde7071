// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
)

// painted returns a PNG of 4 x 4 cells of random colours, side x side pixels, with a little grain as
// photographs have. Equal seeds give equal files.
func painted(side int, seed uint64) ([]byte, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	const cells = 4
	var colours [cells * cells][3]int
	for i := range colours {
		colours[i] = [3]int{r.IntN(240), r.IntN(240), r.IntN(240)}
	}
	m := image.NewNRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			c := colours[y*cells/side*cells+x*cells/side]
			grain := r.IntN(16)
			m.SetNRGBA(x, y, color.NRGBA{R: uint8(c[0] + grain), G: uint8(c[1] + grain), B: uint8(c[2] + grain), A: 255})
		}
	}
	return encodePNG(m)
}

// Noise returns a PNG of at least size bytes and little more: noise does not compress.
func Noise(size int, seed uint64) ([]byte, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	const width = 512
	height := size/(3*width) + 1
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = uint8(r.Uint32())
		if i%4 == 3 {
			m.Pix[i] = 255
		}
	}
	return encodePNG(m)
}

func encodePNG(m image.Image) ([]byte, error) {
	var b bytes.Buffer
	err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, m)
	return b.Bytes(), err
}
