// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/zeebo/blake3"
)

// Digest is the BLAKE3-256 of an image file's bytes as received (base64 undone), never of pixels.
type Digest [32]byte

// DigestOf returns the digest of a whole file.
func DigestOf(file []byte) Digest { return blake3.Sum256(file) }

// Digester computes the Digest of a file that comes in pieces. The zero value is ready for the first.
type Digester struct{ h *blake3.Hasher }

// Write takes the next piece.
func (d *Digester) Write(piece []byte) {
	if d.h == nil {
		d.h = blake3.New()
	}
	_, _ = d.h.Write(piece) // never fails
}

// Digest returns the digest of what was written.
func (d *Digester) Digest() (sum Digest) {
	d.Write(nil)
	d.h.Sum(sum[:0])
	return sum
}

// String returns the digest as 64 lower-case hex digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Identifier is the content name of an item: what the image is and how it is processed. Native
// identifiers are 64 lower-case hex digits; those of vLLM are text of any kind.
type Identifier string

// Processing holds every option between the file's bytes and the tensor that can change the tensor.
// The Encoder announces it; the gateway puts it into identifiers; the media package obeys it.
//
// A field added here must be added to NewIdentifier under a tag of its own.
type Processing struct {
	// Background is the colour that transparent pixels are blended on.
	Background [3]uint8 `json:"background"`
	// IgnoreOrientation skips the EXIF orientation; by default the picture is turned upright.
	IgnoreOrientation bool `json:"ignore_orientation,omitempty"`
	// Square scales the picture to Square x Square pixels before the engine sees it; 0 leaves its size.
	Square int `json:"square,omitempty"`
	// MinPixels and MaxPixels are the limits that the engine's processor resizes to; 0 leaves them to
	// the model file, which the Encoder's fingerprint covers.
	MinPixels int `json:"min_pixels,omitempty"`
	MaxPixels int `json:"max_pixels,omitempty"`
}

// DefaultBackground is white, as vLLM's RGBA default.
var DefaultBackground = [3]uint8{255, 255, 255}

// identifierFormat is the first field of every identifier. A change of tags, of widths or of the
// meaning of an option takes another text, so that old and other names never meet.
const identifierFormat = "afterimage/identifier/1"

// Tags of the fields of an identifier. A tag is never given a second meaning.
const (
	tagFormat            = 1
	tagDigest            = 2
	tagBackground        = 3 // 3 bytes R, G, B
	tagIgnoreOrientation = 4 // 1 byte
	tagSquare            = 5 // u64
	tagMinPixels         = 6 // u64
	tagMaxPixels         = 7 // u64
	tagSalt              = 8
)

// NewIdentifier names the picture with digest d, processed by p, for the tenant with this salt; an
// empty salt shares the name across tenants. hasAlpha says whether the picture has transparency.
//
// The name is the BLAKE3-256, in hex, of fields {u8 tag, u32 length, bytes}, little endian, in the
// order of their tags. What cannot change the tensor is left out: the background of a picture without
// transparency, and options at their zero value, which leave the picture as it is.
func NewIdentifier(d Digest, p Processing, hasAlpha bool, salt []byte) Identifier {
	b := make([]byte, 0, 256)
	b = appendField(b, tagFormat, []byte(identifierFormat))
	b = appendField(b, tagDigest, d[:])
	if hasAlpha {
		b = appendField(b, tagBackground, p.Background[:])
	}
	if p.IgnoreOrientation {
		b = appendField(b, tagIgnoreOrientation, []byte{1})
	}
	b = appendNumber(b, tagSquare, p.Square)
	b = appendNumber(b, tagMinPixels, p.MinPixels)
	b = appendNumber(b, tagMaxPixels, p.MaxPixels)
	if len(salt) > 0 {
		b = appendField(b, tagSalt, salt)
	}
	sum := blake3.Sum256(b)
	return Identifier(hex.EncodeToString(sum[:]))
}

func appendField(b []byte, tag byte, v []byte) []byte {
	b = append(b, tag)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
	return append(b, v...)
}

func appendNumber(b []byte, tag byte, n int) []byte {
	if n == 0 {
		return b
	}
	var v [8]byte
	binary.LittleEndian.PutUint64(v[:], uint64(n))
	return appendField(b, tag, v[:])
}
