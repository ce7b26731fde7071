// SPDX-License-Identifier: Apache-2.0

package embedding_test

import (
	"bytes"
	"encoding/json"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"afterimage/internal/embedding"
)

func TestSelfCheck(t *testing.T) {
	if err := embedding.SelfCheck(); err != nil {
		t.Fatal(err)
	}
}

// The vectors in testdata/identifiers.json and objects_a1.json come from testdata/golden.py, an
// implementation of its own in another language.
func TestIdentifierGolden(t *testing.T) {
	var vectors []struct {
		Name, File, Salt, Digest string
		Processing               embedding.Processing
		HasAlpha                 bool `json:"has_alpha"`
		Identifier               embedding.Identifier
	}
	readJSON(t, "identifiers.json", &vectors)
	names := map[embedding.Identifier]string{}
	for _, v := range vectors {
		d := embedding.DigestOf([]byte(v.File))
		if d.String() != v.Digest {
			t.Errorf("%s: digest %s, want %s", v.Name, d, v.Digest)
		}
		if got := embedding.NewIdentifier(d, v.Processing, v.HasAlpha, []byte(v.Salt)); got != v.Identifier {
			t.Errorf("%s: identifier %s, want %s", v.Name, got, v.Identifier)
		}
		names[v.Identifier] = v.Name
	}
	if len(vectors) != 11 || len(names) != 10 { // one pair is equal on purpose
		t.Errorf("%d vectors with %d names, want 11 with 10", len(vectors), len(names))
	}
}

// K02: an option that changes the tensor changes the name; one that does not, does not.
func TestIdentifierOptions(t *testing.T) {
	d := embedding.DigestOf([]byte("file"))
	name := func(p embedding.Processing, alpha bool) embedding.Identifier {
		return embedding.NewIdentifier(d, p, alpha, nil)
	}
	white := embedding.Processing{Background: embedding.DefaultBackground}
	black := embedding.Processing{}
	if name(white, true) == name(black, true) {
		t.Error("background of a transparent picture does not change its name")
	}
	if name(white, false) != name(black, false) {
		t.Error("background of an opaque picture changes its name")
	}
	seen := map[embedding.Identifier]embedding.Processing{}
	for _, p := range []embedding.Processing{
		{}, {IgnoreOrientation: true}, {Square: 1}, {MinPixels: 1}, {MaxPixels: 1}, {MaxPixels: 256}, {MinPixels: 1, MaxPixels: 1},
	} {
		id := name(p, false)
		if q, ok := seen[id]; ok {
			t.Errorf("%+v and %+v share the name %s", p, q, id)
		}
		seen[id] = p
	}
	if a, b := embedding.NewIdentifier(d, white, false, []byte("a")), embedding.NewIdentifier(d, white, false, []byte("b")); a == b {
		t.Error("two tenants share a name")
	}
}

// K01: files that decode to equal bytes in some buffer have names of their own.
func TestIdentifierOfLookalikes(t *testing.T) {
	pix := bytes.Repeat([]byte{10, 20, 30, 255, 200, 100, 50, 255}, 30*150/2)
	rgb := func(w, h int) []byte {
		return encodePNG(t, &image.NRGBA{Pix: pix, Stride: 4 * w, Rect: image.Rect(0, 0, w, h)})
	}
	indexed := func(p color.Palette) []byte {
		return encodePNG(t, &image.Paletted{Pix: make([]byte, 64), Stride: 8, Rect: image.Rect(0, 0, 8, 8), Palette: p})
	}
	red, blue := color.NRGBA{255, 0, 0, 255}, color.NRGBA{0, 0, 255, 255}
	distinct(t, map[string][]byte{
		"30x150":       rgb(30, 150),
		"150x30":       rgb(150, 30),
		"red palette":  indexed(color.Palette{red}),
		"blue palette": indexed(color.Palette{blue}),
		"faint red":    indexed(color.Palette{color.NRGBA{255, 0, 0, 128}}),
		"fainter red":  indexed(color.Palette{color.NRGBA{255, 0, 0, 127}}),
	})
}

// K05: files that differ only after a long common start have names of their own.
func TestIdentifierOfLongCommonStart(t *testing.T) {
	page := func(grey uint8) []byte {
		img := image.NewGray(image.Rect(0, 0, 16, 16))
		for i := range img.Pix {
			img.Pix[i] = grey
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, img, nil); err != nil {
			t.Fatal(err)
		}
		// One APP15 segment of the largest size after the start marker, then a second one.
		app := append([]byte{0xff, 0xef, 0xff, 0xff}, make([]byte, 0xffff-2)...)
		file := append([]byte{0xff, 0xd8}, app...)
		file = append(file, app...)
		return append(file, b.Bytes()[2:]...)
	}
	a, b := page(10), page(200)
	if !bytes.Equal(a[:64<<10], b[:64<<10]) {
		t.Fatal("the files differ in their first 64 KiB")
	}
	if _, err := jpeg.Decode(bytes.NewReader(a)); err != nil {
		t.Fatalf("the padded file is no JPEG: %v", err)
	}
	distinct(t, map[string][]byte{"dark": a, "light": b})
}

func distinct(t *testing.T, files map[string][]byte) {
	t.Helper()
	seen := map[embedding.Identifier]string{}
	for name, f := range files {
		id := embedding.NewIdentifier(embedding.DigestOf(f), embedding.Processing{}, false, nil)
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s share the name %s", name, other, id)
		}
		seen[id] = name
	}
}

func encodePNG(t *testing.T, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
