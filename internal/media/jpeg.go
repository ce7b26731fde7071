// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"encoding/binary"
)

// JPEG markers.
const (
	jpegSOF0 = 0xc0
	jpegSOF2 = 0xc2
	jpegDHT  = 0xc4
	jpegJPG  = 0xc8
	jpegRST0 = 0xd0
	jpegRST7 = 0xd7
	jpegEOI  = 0xd9
	jpegSOS  = 0xda
	jpegAPP0 = 0xe0
	jpegAPP1 = 0xe1
)

// readJPEG walks the segments up to the first scan, skipping stray bytes between segments exactly as
// image/jpeg does, so that both see the same frame header.
func readJPEG(data []byte) (header, error) {
	h := header{format: "jpeg", orientation: 1}
	var seenEXIF, jfif bool
	for at := 2; ; {
		marker, body, next := jpegSegment(data, at)
		if next == 0 {
			return h, cutOff("JPEG")
		}
		at = next
		switch {
		case marker == jpegAPP0:
			jfif = jfif || bytes.HasPrefix(body, []byte("JFIF\x00"))
		case marker == jpegAPP1:
			if tiff, ok := bytes.CutPrefix(body, []byte(exifPrefix)); ok && !seenEXIF {
				seenEXIF = true
				h.orientation = orientationOf(tiff)
			}
		case marker == jpegEOI, marker == jpegSOS && h.width == 0:
			return h, refuse(ErrBadImage, "the JPEG file has no frame header")
		case marker == jpegSOS:
			if !jfif {
				h.decoderBytes += 4 * int64(h.width) * int64(h.height) // may be RGB, which is copied
			}
			return h, nil
		case marker >= jpegSOF0 && marker <= jpegSOF2:
			if err := jpegFrame(body, marker == jpegSOF2, &h); err != nil {
				return h, err
			}
		case marker > jpegSOF2 && marker < jpegRST0 && marker != jpegDHT && marker != jpegJPG:
			return h, refuse(ErrUnsupported, "JPEG with lossless, hierarchical or arithmetic coding is not supported")
		}
	}
}

// jpegSegment returns the next marker after at, its segment and where the one after it may start;
// next is 0 when the data ends first.
func jpegSegment(data []byte, at int) (marker byte, body []byte, next int) {
	for {
		i := bytes.IndexByte(data[at:], 0xff)
		if i < 0 {
			return 0, nil, 0
		}
		for at += i; at < len(data) && data[at] == 0xff; at++ { // any number of fill bytes
		}
		if at == len(data) {
			return 0, nil, 0
		}
		marker = data[at]
		at++
		if marker == jpegEOI {
			return marker, nil, at
		}
		if marker == 0 || marker >= jpegRST0 && marker <= jpegRST7 {
			continue
		}
		if len(data)-at < 2 {
			return 0, nil, 0
		}
		n := int(binary.BigEndian.Uint16(data[at:]))
		if n < 2 || n > len(data)-at {
			return 0, nil, 0
		}
		return marker, data[at+2 : at+n], at + n
	}
}

// jpegFrame reads a frame header (SOF) into h.
func jpegFrame(body []byte, progressive bool, h *header) error {
	if h.width != 0 {
		return refuse(ErrBadImage, "the JPEG file has two frame headers")
	}
	if len(body) < 9 || len(body) != 6+3*int(body[5]) {
		return refuse(ErrBadImage, "the JPEG frame header has the wrong length")
	}
	if body[0] != 8 {
		return refuse(ErrUnsupported, "JPEG with %d bits per sample is not supported", body[0])
	}
	h.height, h.width = int(binary.BigEndian.Uint16(body[1:])), int(binary.BigEndian.Uint16(body[3:]))
	if h.width == 0 || h.height == 0 {
		return refuse(ErrBadImage, "the JPEG header says %d x %d pixels", h.width, h.height)
	}
	h.rgb = body[5] == 3
	h.decoderBytes = jpegDecoderBytes(body[6:], progressive, h.width, h.height)
	return nil
}

// jpegDecoderBytes bounds the memory of image/jpeg: one byte per sample in whole coding units, four
// more per sample for the coefficients of a progressive picture, and a copy for four components.
func jpegDecoderBytes(components []byte, progressive bool, width, height int) int64 {
	sampling := func(i int) (across, down int64) {
		if len(components) == 3 {
			return 1, 1 // a single component is never interleaved
		}
		return int64(components[i+1] >> 4), int64(components[i+1] & 15)
	}
	across, down := sampling(0)
	if across == 0 || down == 0 {
		return 0 // the decoder refuses it
	}
	units := ((int64(width) + 8*across - 1) / (8 * across)) * ((int64(height) + 8*down - 1) / (8 * down))
	var samples int64
	for i := 0; i < len(components); i += 3 {
		a, d := sampling(i)
		samples += units * 64 * a * d
	}
	if progressive {
		samples *= 5
	}
	if len(components) == 12 {
		samples += 4 * int64(width) * int64(height)
	}
	return samples
}
