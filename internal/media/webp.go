// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"encoding/binary"
	"io"
)

// webpFrame is the one frame of a WebP file that is decoded, with its place on the canvas.
type webpFrame struct {
	x, y, width, height int
	lossless            bool
	alphaHint           bool   // lossless: the alpha values count
	bits                []byte // VP8 or VP8L bit stream
	alpha               []byte // ALPH chunk that goes with a VP8 stream, or nil
}

// readWebP walks the chunks of a simple or extended file. Sizes are taken from the bit stream of the
// frame and, in an extended file, must agree with what stands around it.
func readWebP(data []byte) (header, error) {
	h := header{format: "webp", orientation: 1}
	size := uint64(binary.LittleEndian.Uint32(data[4:])) + 8
	if size > uint64(len(data)) || size < 12 {
		return h, cutOff("WebP")
	}
	id, body, rest, ok := webpChunk(data[12:size])
	if !ok {
		return h, cutOff("WebP")
	}
	flags := byte(0)
	if id != "VP8X" {
		if err := h.frame.add(id, body); err != nil {
			return h, err
		}
		h.width, h.height = h.frame.width, h.frame.height
	} else {
		if len(body) < 10 {
			return h, cutOff("WebP")
		}
		flags = body[0]
		h.width, h.height = 1+le24(body[4:]), 1+le24(body[7:])
		if err := h.readWebPChunks(rest); err != nil {
			return h, err
		}
	}
	if h.frame.bits == nil {
		return h, refuse(ErrBadImage, "the WebP file has no frame")
	}
	f := &h.frame
	h.alpha = f.alpha != nil || f.lossless && f.alphaHint || f.width < h.width || f.height < h.height
	h.rgb = !f.transparent(flags)
	h.decoderBytes = f.decoderBytes()
	return h, nil
}

// Flags of VP8X.
const (
	webpAnimated = 0x02
	webpAlpha    = 0x10
)

// transparent says whether libwebp reports transparency for a file with these flags: a lossless frame
// decides for itself, unless it is one of an animation.
func (f *webpFrame) transparent(flags byte) bool {
	if f.lossless && flags&webpAnimated == 0 {
		return f.alphaHint
	}
	return flags&webpAlpha != 0 || f.alpha != nil && flags&webpAnimated == 0
}

// readWebPChunks reads what follows VP8X: the first frame, still or animated, and EXIF.
func (h *header) readWebPChunks(chunks []byte) error {
	seenEXIF := false
	for len(chunks) > 0 {
		id, body, rest, ok := webpChunk(chunks)
		if !ok {
			return cutOff("WebP")
		}
		chunks = rest
		switch {
		case id == "EXIF" && !seenEXIF:
			seenEXIF = true
			h.orientation = orientationOf(bytes.TrimPrefix(body, []byte(exifPrefix)))
		case h.frame.bits != nil:
		case id == "ANMF":
			if err := h.frame.readAnimated(body); err != nil {
				return err
			}
			if f := h.frame; f.x+f.width > h.width || f.y+f.height > h.height {
				return refuse(ErrBadImage, "a WebP frame of %d x %d at %d,%d leaves the canvas of %d x %d", f.width, f.height, f.x, f.y, h.width, h.height)
			}
		case id == "ALPH", id == "VP8 ", id == "VP8L":
			if err := h.frame.add(id, body); err != nil {
				return err
			}
			if f := h.frame; f.bits != nil && (f.width != h.width || f.height != h.height) {
				return refuse(ErrBadImage, "the WebP canvas is %d x %d but its frame is %d x %d", h.width, h.height, f.width, f.height)
			}
		}
	}
	return nil
}

// readAnimated reads an ANMF chunk: 16 bytes of placement, then the chunks of one still picture.
func (f *webpFrame) readAnimated(body []byte) error {
	if len(body) < 16 {
		return cutOff("WebP")
	}
	w, h := 1+le24(body[6:]), 1+le24(body[9:])
	for chunks := body[16:]; len(chunks) > 0 && f.bits == nil; {
		id, inner, rest, ok := webpChunk(chunks)
		if !ok {
			return cutOff("WebP")
		}
		chunks = rest
		if id == "ALPH" || id == "VP8 " || id == "VP8L" {
			if err := f.add(id, inner); err != nil {
				return err
			}
		}
	}
	if f.bits == nil || f.width != w || f.height != h {
		return refuse(ErrBadImage, "a WebP frame of %d x %d holds a picture of %d x %d", w, h, f.width, f.height)
	}
	f.x, f.y = 2*le24(body), 2*le24(body[3:])
	return nil
}

// add takes one chunk of a still picture into f.
func (f *webpFrame) add(id string, body []byte) error {
	switch id {
	case "ALPH":
		f.alpha = body
	case "VP8 ":
		if len(body) < 10 {
			return cutOff("WebP")
		}
		if body[0]&1 != 0 || string(body[3:6]) != "\x9d\x01\x2a" {
			return refuse(ErrBadImage, "the WebP frame does not start with a VP8 key frame")
		}
		f.bits, f.width, f.height = body, le16(body[6:])&0x3fff, le16(body[8:])&0x3fff
	case "VP8L":
		if len(body) < 5 {
			return cutOff("WebP")
		}
		v := binary.LittleEndian.Uint32(body[1:])
		if body[0] != 0x2f || v>>29 != 0 {
			return refuse(ErrBadImage, "the WebP frame does not start with a VP8L header")
		}
		f.bits, f.lossless, f.alpha, f.alphaHint = body, true, nil, v>>28&1 != 0
		f.width, f.height = 1+int(v&0x3fff), 1+int(v>>14&0x3fff)
	default:
		return refuse(ErrUnsupported, "cannot identify image file (a WebP file that starts with an unknown chunk)")
	}
	return nil
}

// webpChunk splits the first chunk off; ok is false when it is cut off. A missing pad byte at the
// very end is forgiven.
func webpChunk(b []byte) (id string, body, rest []byte, ok bool) {
	if len(b) < 8 {
		return "", nil, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b[4:]))
	if n > uint64(len(b)-8) {
		return "", nil, nil, false
	}
	return string(b[:4]), b[8 : 8+n], b[min(8+n+n&1, uint64(len(b))):], true
}

// decoderBytes bounds the memory of golang.org/x/image/webp.
func (f *webpFrame) decoderBytes() int64 {
	pixels := int64(f.width) * int64(f.height)
	if f.lossless {
		return losslessBytes(pixels, len(f.bits))
	}
	n := int64(f.width+15) * int64(f.height+15) * 3 / 2
	n += pixels/16 + int64(len(f.bits)) // filter parameters of each macroblock; copy of the stream
	if len(f.alpha) > 0 {
		n += pixels
		if f.alpha[0]&3 == 1 {
			n += losslessBytes(pixels, len(f.alpha))
		}
	}
	return n
}

// losslessBytes bounds the VP8L decoder: two NRGBA images and the transform images, and the Huffman
// trees, of which the decoder admits 2600 groups of at most 52 KiB, each symbol at least half a bit.
func losslessBytes(pixels int64, streamBytes int) int64 {
	return 9*pixels + min(2600*52<<10, 256*int64(streamBytes))
}

// reader returns a WebP file of exactly the frame's chunks, with lengths that are true. The decoder
// thus never sees a size, chunk or length that the header reader has not checked.
func (f *webpFrame) reader() io.Reader {
	var parts []io.Reader
	total := 4
	chunk := func(id string, body []byte) {
		head := binary.LittleEndian.AppendUint32([]byte(id), uint32(len(body)))
		parts = append(parts, bytes.NewReader(head), bytes.NewReader(body), bytes.NewReader(make([]byte, len(body)&1)))
		total += 8 + len(body) + len(body)&1
	}
	switch {
	case f.lossless:
		chunk("VP8L", f.bits)
	case f.alpha == nil:
		chunk("VP8 ", f.bits)
	default:
		const hasAlpha = 1 << 4
		w, h := f.width-1, f.height-1
		chunk("VP8X", []byte{hasAlpha, 0, 0, 0, byte(w), byte(w >> 8), 0, byte(h), byte(h >> 8), 0})
		chunk("ALPH", f.alpha)
		chunk("VP8 ", f.bits)
	}
	head := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(total))
	return io.MultiReader(append([]io.Reader{bytes.NewReader(append(head, "WEBP"...))}, parts...)...)
}
