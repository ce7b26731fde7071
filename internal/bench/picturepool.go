// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/color/palette"
	"image/png"
	"math/rand/v2"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// tiled returns a small PNG of side x side pixels: 16 x 16 cells of random colours. Equal seeds give equal
// files, different ones different files. It costs little to make and to decode.
func tiled(side int, seed uint64) ([]byte, error) {
	r := rand.New(rand.NewPCG(seed, 0x2545f4914f6cdd1d))
	var cells [256]byte
	for i := 0; i < len(cells); i += 8 {
		binary.LittleEndian.PutUint64(cells[i:], r.Uint64())
	}
	m := image.NewPaletted(image.Rect(0, 0, side, side), palette.Plan9)
	for y := range side {
		row := m.Pix[y*m.Stride:]
		for x := range side {
			row[x] = cells[y*16/side*16+x*16/side]
		}
	}
	// The seed itself, so that no two small pictures are equal by chance.
	for i := range min(8, side) {
		m.Pix[i] = byte(seed >> (8 * i))
	}
	var b bytes.Buffer
	enc := png.Encoder{CompressionLevel: png.BestSpeed}
	err := enc.Encode(&b, m)
	return b.Bytes(), err
}

// dataURLs makes n pictures, as data URLs ready for a request. side chooses the size of each.
func dataURLs(n int, seed uint64, side func(i int) int) ([][]byte, error) {
	out := make([][]byte, n)
	var grp errgroup.Group
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		grp.Go(func() error {
			for i := w; i < n; i += workers {
				file, err := tiled(side(i), seed<<32|uint64(i))
				if err != nil {
					return err
				}
				out[i] = base64.StdEncoding.AppendEncode([]byte("data:image/png;base64,"), file)
			}
			return nil
		})
	}
	return out, grp.Wait()
}
