// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"

	"afterimage/internal/media"
)

// grid is the number of cells per side that the demo tower tells apart: one row each.
const grid = 4

// painting is a square picture under the brush, before noise: RGB parts in 0..1.
type painting struct {
	side int
	px   [][3]float64
}

// paint returns a random picture of side x side pixels and the colour of each cell, row by row. Two
// pictures of three have one colour for each cell; the others are shapes on a ground, whose edges
// cross cells. The colours fade downwards, and all is grainy. The map was fitted to pictures like
// these.
func paint(r *rand.Rand, side int) (media.Pixels, []int) {
	p := painting{side, make([][3]float64, side*side)}
	if cell := side / grid; r.IntN(3) > 0 {
		for i := range grid * grid {
			x, y := i%grid*cell, i/grid*cell
			p.fill(pick(r), x, y, x+cell, y+cell, false)
		}
	} else {
		p.fill(pick(r), 0, 0, side, side, false)
		for range 1 + r.IntN(6) {
			x, y := r.IntN(side), r.IntN(side)
			w, h := side/6+r.IntN(side/2), side/6+r.IntN(side/2)
			p.fill(pick(r), x, y, x+w, y+h, r.IntN(2) == 0)
		}
	}
	return p.grainy(r), p.cells()
}

// pick returns a random colour: a gray, a pale or dark one, or, most often, a clear one.
func pick(r *rand.Rand) [3]float64 {
	switch r.IntN(6) {
	case 0:
		v := r.Float64()
		return [3]float64{v, v, v}
	case 1:
		return fromHSV(r.Float64()*360, r.Float64()*0.6, 0.3+r.Float64()*0.7)
	}
	return fromHSV(r.Float64()*360, 0.3+r.Float64()*0.7, 0.3+r.Float64()*0.7)
}

// fill paints a rectangle, or the oval inside it, cut off at the edges of the picture.
func (p painting) fill(c [3]float64, x0, y0, x1, y1 int, oval bool) {
	for y := y0; y < min(y1, p.side); y++ {
		fade := 1 - 0.15*float64(y-y0)/float64(y1-y0)
		v := float64(2*y-y0-y1) / float64(y1-y0)
		for x := x0; x < min(x1, p.side); x++ {
			u := float64(2*x-x0-x1) / float64(x1-x0)
			if oval && u*u+v*v > 1 {
				continue
			}
			p.px[y*p.side+x] = [3]float64{c[0] * fade, c[1] * fade, c[2] * fade}
		}
	}
}

// grainy returns the picture as bytes, with up to 7.5 % of noise either way.
func (p painting) grainy(r *rand.Rand) media.Pixels {
	out := media.Pixels{Width: p.side, Height: p.side, RGB: make([]byte, 0, 3*len(p.px))}
	noise := r.Float64() * 0.15
	for _, c := range p.px {
		for _, v := range c {
			v += noise * (r.Float64() - 0.5)
			out.RGB = append(out.RGB, byte(255*min(max(v, 0), 1)))
		}
	}
	return out
}

// cells returns the most frequent colour of each cell, row by row.
func (p painting) cells() []int {
	const step = 4 // looking at one pixel of 16 is enough
	cell, out := p.side/grid, make([]int, grid*grid)
	for i := range out {
		count := make([]int, len(colours))
		for y := i / grid * cell; y < (i/grid+1)*cell; y += step {
			for x := i % grid * cell; x < (i%grid+1)*cell; x += step {
				c := p.px[y*p.side+x]
				count[colourOf(c[0], c[1], c[2])]++
			}
		}
		for c := range count {
			if count[c] > count[out[i]] {
				out[i] = c
			}
		}
	}
	return out
}
