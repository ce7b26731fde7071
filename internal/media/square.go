// SPDX-License-Identifier: Apache-2.0

package media

// square stretches px to n x n with a box filter: each pixel is the mean, rounded down, of the source
// pixels of its box, which is at least one pixel wide and high.
func square(px Pixels, n int) Pixels {
	out := make([]byte, 0, 3*n*n)
	sums := make([]uint64, 3*n)
	edge := func(i, side int) (from, to int) {
		from = i * side / n
		return from, max((i+1)*side/n, from+1)
	}
	for y := range n {
		top, bottom := edge(y, px.Height)
		clear(sums)
		for v := top; v < bottom; v++ {
			row := px.RGB[3*v*px.Width : 3*(v+1)*px.Width]
			for x := range n {
				left, right := edge(x, px.Width)
				r, g, b := uint32(0), uint32(0), uint32(0)
				for box := row[3*left : 3*right]; len(box) >= 3; box = box[3:] {
					r, g, b = r+uint32(box[0]), g+uint32(box[1]), b+uint32(box[2])
				}
				sums[3*x] += uint64(r)
				sums[3*x+1] += uint64(g)
				sums[3*x+2] += uint64(b)
			}
		}
		for x := range n {
			left, right := edge(x, px.Width)
			area := uint64((right - left) * (bottom - top))
			out = append(out, byte(sums[3*x]/area), byte(sums[3*x+1]/area), byte(sums[3*x+2]/area))
		}
	}
	return Pixels{Width: n, Height: n, RGB: out}
}
