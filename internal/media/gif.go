// SPDX-License-Identifier: Apache-2.0

package media

import "encoding/binary"

// GIF block introducers.
const (
	gifExtension      = 0x21
	gifGraphicControl = 0xf9
	gifFrame          = 0x2c
)

// readGIF reads the screen size and walks the blocks up to the first frame. The picture is the whole
// screen: where the frame does not reach, the background shows.
func readGIF(data []byte) (header, error) {
	h := header{format: "gif", orientation: 1}
	if len(data) < 13 {
		return h, cutOff("GIF")
	}
	h.width, h.height = le16(data[6:]), le16(data[8:])
	at := 13
	if flags := data[10]; flags&0x80 != 0 {
		at += 3 << (1 + flags&7)
	}
	for {
		if len(data)-at < 10 { // no frame fits any more, and shorter blocks lead to none
			return h, cutOff("GIF")
		}
		switch data[at] {
		case gifExtension:
			if data[at+1] == gifGraphicControl && data[at+3]&1 != 0 {
				h.alpha = true
			}
			at = skipGIFBlocks(data, at+2)
		case gifFrame:
			left, top, w, ht := le16(data[at+1:]), le16(data[at+3:]), le16(data[at+5:]), le16(data[at+7:])
			if left+w > h.width || top+ht > h.height {
				return h, refuse(ErrBadImage, "a GIF frame of %d x %d at %d,%d leaves the screen of %d x %d", w, ht, left, top, h.width, h.height)
			}
			h.alpha = h.alpha || w < h.width || ht < h.height
			h.decoderBytes = int64(w) * int64(ht)
			return h, nil
		default:
			return h, refuse(ErrBadImage, "the GIF file has no frame")
		}
	}
}

// skipGIFBlocks returns where the chain of sub-blocks at data[at:] ends; len(data) if it does not.
func skipGIFBlocks(data []byte, at int) int {
	for at < len(data) {
		n := int(data[at])
		at += 1 + n
		if n == 0 {
			return at
		}
	}
	return len(data)
}

func le16(b []byte) int { return int(binary.LittleEndian.Uint16(b)) }
func le24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
