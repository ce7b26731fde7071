// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"afterimage/internal/embedding"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var white = embedding.Processing{Background: embedding.DefaultBackground}

func load(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pictures returns the names of all pictures in testdata.
func pictures(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if n := e.Name(); !e.IsDir() && n != "README.md" {
			names = append(names, n)
		}
	}
	if len(names) < 25 {
		t.Fatalf("testdata holds %d pictures", len(names))
	}
	return names
}

func mustDecode(t testing.TB, data []byte, p embedding.Processing) Pixels {
	t.Helper()
	px, err := Decode(t.Context(), data, p, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if len(px.RGB) != 3*px.Width*px.Height {
		t.Fatalf("%d bytes for %d x %d pixels", len(px.RGB), px.Width, px.Height)
	}
	return px
}

func wantKind(t testing.TB, err error, kind Kind) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, kind) || e.Msg == "" {
		t.Fatalf("got error %v, want one of kind %q", err, kind)
	}
}

func encodePNG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encodeJPEG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// flat returns a one-colour picture.
func flat(w, h int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := 0; i < len(m.Pix); i += 4 {
		copy(m.Pix[i:], []byte{200, 100, 50, 255})
	}
	return m
}

func fromRGB(w, h int, rgb []byte) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.SetNRGBA(i%w, i/w, color.NRGBA{rgb[3*i], rgb[3*i+1], rgb[3*i+2], 255})
	}
	return m
}

// pngChunk returns a whole chunk with its checksum.
func pngChunk(id string, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = append(append(b, id...), body...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:]))
}

// insert returns b with more at offset at.
func insert(b []byte, at int, more []byte) []byte {
	return append(append(bytes.Clone(b[:at]), more...), b[at:]...)
}

// segment returns a JPEG segment.
func segment(marker byte, body []byte) []byte {
	return append([]byte{0xff, marker, byte((len(body) + 2) >> 8), byte(len(body) + 2)}, body...)
}

// tiff returns an EXIF body whose second entry is the orientation.
func tiff(order binary.AppendByteOrder, orientation uint16) []byte {
	b := []byte("II*\x00")
	if order.String() == binary.BigEndian.String() {
		b = []byte("MM\x00*")
	}
	b = order.AppendUint32(b, 8)
	b = order.AppendUint16(b, 2)
	for _, e := range [][2]uint16{{0x0100, 7}, {0x0112, orientation}} {
		b = order.AppendUint16(b, e[0])
		b = order.AppendUint16(b, 3)
		b = order.AppendUint32(b, 1)
		b = order.AppendUint16(b, e[1])
		b = order.AppendUint16(b, 0)
	}
	return order.AppendUint32(b, 0)
}

// riffFile returns a WebP file of the given chunks.
func riffFile(chunks ...[]byte) []byte {
	body := append([]byte("WEBP"), bytes.Join(chunks, nil)...)
	return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body))), body...)
}

func riffChunk(id string, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(id), uint32(len(body)))
	b = append(b, body...)
	return append(b, make([]byte, len(body)&1)...)
}

// vp8x returns the chunk that opens an extended file.
func vp8x(flags byte, w, h int) []byte {
	return riffChunk("VP8X", []byte{flags, 0, 0, 0, byte(w - 1), byte((w - 1) >> 8), byte((w - 1) >> 16), byte(h - 1), byte((h - 1) >> 8), byte((h - 1) >> 16)})
}
