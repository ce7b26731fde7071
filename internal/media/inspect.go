// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"

	"afterimage/internal/embedding"
)

// Info is what the header of an image says.
type Info struct {
	Format        string // "png", "jpeg", "gif" or "webp"
	Width, Height int    // upright: the orientation is applied
	Orientation   int    // EXIF value 1 to 8; 1 when there is none or EXIF is damaged
	// Alpha says that the background may show through. When it is false, Processing.Background
	// changes no pixel.
	Alpha bool
	// RGB says that the file holds plain 24-bit colour: no palette, grey, CMYK or channel of
	// transparency. vLLM's names depend on it.
	RGB bool
}

// Size returns the width and height that Decode gives under p.
func (i Info) Size(p embedding.Processing) (width, height int) {
	switch {
	case p.Square > 0:
		return p.Square, p.Square
	case p.IgnoreOrientation && turned(i.Orientation):
		return i.Height, i.Width
	}
	return i.Width, i.Height
}

// Inspect reads the header of an image and enforces all limits that can be told from it. It decodes
// nothing and allocates nothing in proportion to what the header claims.
//
// For WebP it reads the frame that will be decoded as well as the canvas, which may state another
// size. A file that passes may still be cut off or corrupt in its pixels; Decode tells.
func Inspect(data []byte, l Limits) (Info, error) {
	h, err := inspect(data, l.withDefaults())
	if err != nil {
		return Info{}, err
	}
	i := Info{Format: h.format, Width: h.width, Height: h.height, Orientation: h.orientation, Alpha: h.alpha, RGB: h.rgb}
	if turned(h.orientation) {
		i.Width, i.Height = h.height, h.width
	}
	return i, nil
}

// header is what the own header readers find. Sides are as stored, before orientation.
type header struct {
	format        string
	width, height int
	orientation   int
	alpha, rgb    bool
	decoderBytes  int64     // upper bound of what the decoder of this format allocates
	frame         webpFrame // WebP only: the frame to decode
}

// inspect reads and judges the header; l is complete.
func inspect(data []byte, l Limits) (header, error) {
	if err := l.checkBytes(len(data)); err != nil {
		return header{}, err
	}
	read := readerFor(data)
	if read == nil {
		return header{}, refuse(ErrUnsupported, "cannot identify image file%s; PNG, JPEG, GIF and WebP are supported", foreign(data))
	}
	h, err := read(data)
	if err != nil {
		return header{}, err
	}
	if h.width == 0 || h.height == 0 {
		return header{}, refuse(ErrBadImage, "the header says %d x %d pixels", h.width, h.height)
	}
	return h, l.checkSize(h.width, h.height)
}

// readerFor returns the header reader for the type that the first bytes show, or nil.
func readerFor(data []byte) func([]byte) (header, error) {
	switch {
	case bytes.HasPrefix(data, []byte(pngMagic)):
		return readPNG
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		return readJPEG
	case bytes.HasPrefix(data, []byte("GIF87a")), bytes.HasPrefix(data, []byte("GIF89a")):
		return readGIF
	case len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		return readWebP
	}
	return nil
}

// foreign names a well-known type that is not served, so that the refusal helps.
func foreign(data []byte) string {
	head := bytes.ToLower(bytes.TrimLeft(data[:min(len(data), 256)], " \t\r\n\xef\xbb\xbf"))
	has := func(prefix string) bool { return bytes.HasPrefix(head, []byte(prefix)) }
	brand := func(names ...string) bool {
		for _, n := range names {
			if len(head) >= 12 && string(head[4:12]) == "ftyp"+n {
				return true
			}
		}
		return false
	}
	switch {
	case brand("avif", "avis"):
		return " (this is AVIF)"
	case brand("heic", "heix", "heim", "hevc", "mif1", "msf1"):
		return " (this is HEIC)"
	case has("<svg"), has("<?xml") && bytes.Contains(head, []byte("<svg")):
		return " (this is SVG)"
	case has("<!doctype html"), has("<html"):
		return " (this is an HTML page)"
	case has("%pdf-"):
		return " (this is PDF)"
	case has("ii*\x00"), has("mm\x00*"):
		return " (this is TIFF)"
	case has("bm") && len(data) > 26:
		return " (this may be BMP)"
	}
	return ""
}
