// SPDX-License-Identifier: Apache-2.0

package media

import "encoding/binary"

const pngMagic = "\x89PNG\r\n\x1a\n"

// PNG colour types.
const (
	pngGray      = 0
	pngTrue      = 2
	pngPalette   = 3
	pngGrayAlpha = 4
	pngTrueAlpha = 6
)

// readPNG reads IHDR and walks the chunks for tRNS and eXIf. Checksums are left to the decoder.
func readPNG(data []byte) (header, error) {
	h := header{format: "png", orientation: 1}
	if len(data) < 33 {
		return h, cutOff("PNG")
	}
	ihdr := data[16:29]
	if binary.BigEndian.Uint32(data[8:]) != 13 || string(data[12:16]) != "IHDR" {
		return h, refuse(ErrBadImage, "the PNG file does not start with its header")
	}
	w, ht := binary.BigEndian.Uint32(ihdr), binary.BigEndian.Uint32(ihdr[4:])
	if w > 1<<31-1 || ht > 1<<31-1 {
		return h, refuse(ErrBadImage, "the PNG header says %d x %d pixels", w, ht)
	}
	h.width, h.height = int(w), int(ht)
	depth, colour, interlaced := ihdr[8], ihdr[9], ihdr[12] != 0
	h.alpha = colour == pngGrayAlpha || colour == pngTrueAlpha
	h.rgb = colour == pngTrue
	walkPNG(data[33:], &h)
	perPixel := int64(pngPixelBytes(colour, depth, h.alpha))
	if interlaced {
		perPixel *= 2 // each pass is an image of its own; together they hold every pixel once more
	}
	// Saturation is not needed: the pixel limit is checked before this figure is used.
	h.decoderBytes = int64(h.width)*perPixel*int64(h.height) + 4*perPixel*int64(h.width)
	return h, nil
}

// walkPNG looks into the chunks after IHDR. tRNS counts only before IDAT, where decoders heed it;
// eXIf may stand anywhere.
func walkPNG(chunks []byte, h *header) {
	seenData := false
	for len(chunks) >= 12 {
		n := binary.BigEndian.Uint32(chunks)
		if uint64(n)+12 > uint64(len(chunks)) {
			return // cut off: the decoder says so with the pixels
		}
		body := chunks[8 : 8+n]
		switch string(chunks[4:8]) {
		case "IDAT":
			seenData = true
		case "tRNS":
			h.alpha = h.alpha || !seenData
		case "eXIf":
			h.orientation = orientationOf(body)
		case "IEND":
			return
		}
		chunks = chunks[12+n:]
	}
}

// pngPixelBytes returns the size of a pixel in the image type that image/png decodes to.
func pngPixelBytes(colour, depth byte, alpha bool) int {
	n := 4
	switch {
	case colour == pngPalette:
		return 1
	case colour == pngGray && !alpha:
		n = 1
	}
	if depth == 16 {
		n *= 2
	}
	return n
}
