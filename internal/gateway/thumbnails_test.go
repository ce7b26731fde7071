// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"fmt"
	stdimage "image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"afterimage/internal/embedding"
	"afterimage/internal/media"
)

// pictureOf is a PNG of one colour, or of noise for a nil one.
func pictureOf(t *testing.T, w, h int, c color.Color) []byte {
	t.Helper()
	img := stdimage.NewRGBA(stdimage.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(1, 2))
	for y := range h {
		for x := range w {
			if c == nil {
				img.Set(x, y, color.RGBA{uint8(r.Uint32()), uint8(r.Uint32()), uint8(r.Uint32()), 255})
			} else {
				img.Set(x, y, c)
			}
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestMakeThumbnail(t *testing.T) {
	f := func(w, h, wantW, wantH int) {
		t.Helper()
		b := makeThumbnail(t.Context(), pictureOf(t, w, h, color.RGBA{200, 30, 90, 255}), thumbnailPixels)
		img, err := jpeg.Decode(bytes.NewReader(b))
		if err != nil || img.Bounds().Dx() != wantW || img.Bounds().Dy() != wantH {
			t.Fatalf("%dx%d: got %v (%v), want %dx%d", w, h, img, err, wantW, wantH)
		}
		r, g, bl, _ := img.At(wantW/2, wantH/2).RGBA()
		near := func(x uint32, want int) bool { d := int(x>>8) - want; return d > -12 && d < 12 }
		if !near(r, 200) || !near(g, 30) || !near(bl, 90) {
			t.Errorf("%dx%d: the colour is %d %d %d", w, h, r>>8, g>>8, bl>>8)
		}
	}
	f(960, 480, 96, 48)
	f(100, 400, 24, 96)
	f(20, 10, 20, 10)
	f(400, 3, 96, 1)
	if b := makeThumbnail(t.Context(), []byte("no picture"), thumbnailPixels); b != nil {
		t.Error("no picture has a thumbnail")
	}
	if b := makeThumbnail(t.Context(), pictureOf(t, 96, 96, nil), thumbnailPixels); len(b) > thumbnailBytes {
		t.Errorf("noise makes a thumbnail of %d bytes", len(b))
	}
	if b := makeThumbnail(t.Context(), pictureOf(t, 40, 30, color.White), 40*30-1); b != nil {
		t.Error("a picture of too many pixels has a thumbnail")
	}
}

// Transparent pictures lie on white, as people expect.
func TestThumbnailOfTransparency(t *testing.T) {
	if r, g, b := mean(media.Pixels{Width: 2, Height: 1, RGB: []byte{0, 10, 20, 100, 110, 120}}, 0, 0, 2, 1); r != 50 || g != 60 || b != 70 {
		t.Errorf("mean is %d %d %d", r, g, b)
	}
	img, err := jpeg.Decode(bytes.NewReader(makeThumbnail(t.Context(), pictureOf(t, 8, 8, color.RGBA{}), thumbnailPixels)))
	if err != nil {
		t.Fatal(err)
	}
	if r, g, b, _ := img.At(4, 4).RGBA(); r>>8 < 250 || g>>8 < 250 || b>>8 < 250 {
		t.Errorf("transparent pixels are %d %d %d", r>>8, g>>8, b>>8)
	}
}

// What waits is bounded in number and in bytes, what is kept in number; what was used stays. Nobody ever waits.
func TestThumbnailsAreBounded(t *testing.T) {
	file := pictureOf(t, 4, 4, color.White)
	named := func(i int) *image {
		return &image{id: embedding.Identifier(fmt.Sprintf("%064d", i)), file: file}
	}
	s := newThumbnails()
	for i := range 3 * maxThumbnailJobs {
		s.offer([]*image{named(i), named(i)})
	}
	if len(s.jobs) != maxThumbnailJobs || s.waiting != maxThumbnailJobs*len(file) {
		t.Errorf("%d wait, with %d bytes", len(s.jobs), s.waiting)
	}
	large := newThumbnails()
	large.offer([]*image{{id: "a", file: make([]byte, maxThumbnailFiles)}, {id: "b", file: file}})
	if len(large.jobs) != 1 {
		t.Errorf("%d files of more than the limit wait", len(large.jobs))
	}
	synctest.Test(t, func(t *testing.T) {
		s := newThumbnails()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		for i := range maxThumbnails + 10 {
			s.offer([]*image{named(i), named(0)}) // 0 is used again and again
			synctest.Wait()
		}
		if s.recent.Len() != maxThumbnails || len(s.made) != maxThumbnails || s.waiting != 0 || len(s.pending) != 0 {
			t.Errorf("kept %d and %d, waiting %d and %d", s.recent.Len(), len(s.made), s.waiting, len(s.pending))
		}
		if s.get(named(0).id) == nil || s.get(named(1).id) != nil {
			t.Error("what is used leaves before what is not")
		}
		stop()
		wg.Wait()
	})
}

// Without the key of the configuration there are none, and a gateway says so.
func TestThumbnailsAreOptional(t *testing.T) {
	var none *thumbnails
	none.offer([]*image{{id: "a"}})
	g := &Gateway{}
	get := func() *httptest.ResponseRecorder {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/thumbnails/{identifier}", g.serveThumbnail)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/thumbnails/a", nil))
		return w
	}
	if w := get(); w.Code != http.StatusNotFound {
		t.Errorf("off: %d", w.Code)
	}
	g.thumbnails = newThumbnails()
	g.thumbnails.keepLocked(&thumbnail{"a", []byte("jpeg")})
	if w := get(); w.Code != http.StatusOK || w.Body.String() != "jpeg" || w.Header().Get("Content-Type") != "image/jpeg" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("on: %d %v", w.Code, w.Header())
	}
}
