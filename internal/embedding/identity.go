// SPDX-License-Identifier: Apache-2.0

package embedding

// Digest is the BLAKE3-256 of an image file's bytes as received (base64 undone), never of pixels.
type Digest [32]byte

// Identifier is the content name of an item: what the image is and how it is processed. Native
// identifiers are 64 lower-case hex digits; those of vLLM are text of any kind.
type Identifier string

// Processing holds every option between the file's bytes and the tensor that can change the tensor.
// The Encoder announces it; the gateway puts it into identifiers; the media package obeys it.
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
