// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"image"
)

// turned reports whether an orientation exchanges width and height.
func turned(orientation int) bool { return orientation >= 5 }

// stripRows is how many rows are converted at a time. A turned picture is written in columns; a strip
// fills a run of neighbouring pixels per column instead of one.
const stripRows = 16

// upright converts img to RGB on the canvas of h and turns it as the orientation says.
func upright(ctx context.Context, img image.Image, h header, background [3]uint8) (Pixels, error) {
	px := Pixels{Width: h.width, Height: h.height, RGB: make([]byte, 3*h.width*h.height)}
	if turned(h.orientation) {
		px.Width, px.Height = h.height, h.width
	}
	fill := canvasRows(img, h, background)
	stride := 3 * h.width
	strip := px.RGB
	if h.orientation != 1 {
		strip = make([]byte, min(stripRows, h.height)*stride)
	}
	for y := 0; y < h.height; y += stripRows {
		if err := ctx.Err(); err != nil {
			return Pixels{}, err
		}
		if h.orientation == 1 {
			strip = px.RGB[y*stride:]
		}
		n := min(stripRows, h.height-y)
		for i := range n {
			fill(strip[i*stride:(i+1)*stride], y+i)
		}
		if h.orientation != 1 {
			scatter(px.RGB, strip[:n*stride], y, h)
		}
	}
	return px, nil
}

// canvasRows returns a function that writes row y of the canvas: the picture where it lies, the
// background around it.
func canvasRows(img image.Image, h header, background [3]uint8) func(dst []byte, y int) {
	at := img.Bounds().Min
	if h.format == "webp" {
		at = image.Pt(h.frame.x, h.frame.y)
	}
	size := img.Bounds().Size()
	row := rowsOf(img, background, !h.alpha, h.format == "webp")
	if size.X == h.width && size.Y == h.height {
		return row
	}
	return func(dst []byte, y int) {
		for i := 0; i < len(dst); i += 3 {
			dst[i], dst[i+1], dst[i+2] = background[0], background[1], background[2]
		}
		if y >= at.Y && y < at.Y+size.Y {
			row(dst[3*at.X:3*(at.X+size.X)], y-at.Y)
		}
	}
}

// scatter writes a strip of stored rows, the first of which is row y, to their upright places.
func scatter(dst, strip []byte, y int, h header) {
	n := len(strip) / (3 * h.width)
	start, acrossStep, downStep := placement(h.orientation, h.width, h.height)
	for x := range h.width {
		src := 3 * x
		to := 3 * (start + x*acrossStep + y*downStep)
		for range n {
			dst[to], dst[to+1], dst[to+2] = strip[src], strip[src+1], strip[src+2]
			src += 3 * h.width
			to += 3 * downStep
		}
	}
}

// placement says where the stored pixel (x, y) of a w x h picture goes, counted in pixels of the
// upright picture: start + x*across + y*down. The values are those of the EXIF tag 0x0112.
func placement(orientation, w, h int) (start, across, down int) {
	switch orientation {
	case 2: // mirrored left to right
		return w - 1, -1, w
	case 3: // half a turn
		return w*h - 1, -1, -w
	case 4: // mirrored top to bottom
		return (h - 1) * w, 1, -w
	case 5: // transposed
		return 0, h, 1
	case 6: // shown after a quarter turn clockwise
		return h - 1, h, -1
	case 7: // transposed over the other diagonal
		return w*h - 1, -h, -1
	case 8: // shown after a quarter turn counter-clockwise
		return (w - 1) * h, -h, 1
	}
	return 0, 1, w
}
