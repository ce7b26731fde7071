// SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/binary"
	"testing"

	"afterimage/internal/embedding"
)

// BenchmarkDecode shows what turning and scaling add to the decoder's own time.
func BenchmarkDecode(b *testing.B) {
	plain := encodeJPEG(b, flat(2000, 1500))
	turned := insert(plain, 2, segment(0xe1, append([]byte(exifPrefix), tiff(binary.BigEndian, 6)...)))
	run := func(name string, data []byte, p embedding.Processing) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(2000 * 1500 * 3)
			for b.Loop() {
				mustDecode(b, data, p)
			}
		})
	}
	run("upright", plain, white)
	run("turned", turned, white)
	run("square", plain, embedding.Processing{Square: 224})
	h, err := inspect(plain, DefaultLimits())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decoder alone", func(b *testing.B) {
		b.SetBytes(2000 * 1500 * 3)
		for b.Loop() {
			if _, err := decodeFrame(b.Context(), plain, h); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkInspect(b *testing.B) {
	data := load(b, "video-001.progressive.jpeg")
	for b.Loop() {
		if _, err := Inspect(data, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
