// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"afterimage/internal/embedding"
)

// Every real picture decodes to what At of the decoder's own image says, pixel by pixel.
func TestDecodeEqualsAt(t *testing.T) {
	for _, name := range pictures(t) {
		if strings.Contains(name, "lossy") {
			continue // the studio range is not what At assumes; see TestWebPColours
		}
		data := load(t, name)
		bg := embedding.Processing{Background: [3]uint8{10, 200, 90}}
		px := mustDecode(t, data, bg)
		h, err := inspect(data, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		m, err := decodeFrame(t.Context(), data, h)
		if err != nil {
			t.Fatal(err)
		}
		for i := range px.Width * px.Height {
			want := flatten(m.At(i%px.Width, i/px.Width), bg.Background, false)
			if got := [3]uint8(px.RGB[3*i:]); got != want {
				t.Errorf("%s (%T): pixel %d is %v, want %v", name, m, i, got, want)
				break
			}
		}
	}
}

func TestInspectSaysWhatDecodeGives(t *testing.T) {
	for _, name := range pictures(t) {
		data := load(t, name)
		info, err := Inspect(data, Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		px := mustDecode(t, data, white)
		if px.Width != info.Width || px.Height != info.Height {
			t.Errorf("%s: %d x %d, Inspect said %d x %d", name, px.Width, px.Height, info.Width, info.Height)
		}
		black := mustDecode(t, data, embedding.Processing{})
		if same := bytes.Equal(px.RGB, black.RGB); same == info.Alpha {
			t.Errorf("%s: Alpha is %t, but the background changes the pixels: %t", name, info.Alpha, !same)
		}
	}
}

func distance(a, b Pixels) float64 {
	var sum float64
	for i := range a.RGB {
		sum += math.Abs(float64(a.RGB[i]) - float64(b.RGB[i]))
	}
	return sum / float64(len(a.RGB))
}

// A lossy and a lossless file of one photograph are close only if the colour range is right: taken
// as full range, the mean distance is about ten levels.
func TestWebPColours(t *testing.T) {
	exact := mustDecode(t, load(t, "yellow_rose.lossless.webp"), embedding.Processing{})
	rose := mustDecode(t, load(t, "yellow_rose.lossy-with-alpha.webp"), embedding.Processing{})
	if d := distance(exact, rose); d > 4 {
		t.Errorf("yellow_rose: mean distance of the lossy file to the lossless one is %.2f levels", d)
	}
	photo, lossy := mustDecode(t, load(t, "video-001.png"), white), mustDecode(t, load(t, "video-001.lossy.webp"), white)
	if d := distance(photo, lossy); d > 6 {
		t.Errorf("video-001: mean distance of the lossy WebP to the PNG is %.2f levels", d)
	}
}

func TestJPEGVariantsAreClose(t *testing.T) {
	want := mustDecode(t, load(t, "video-001.png"), white)
	for _, name := range []string{"video-001.jpeg", "video-001.progressive.jpeg", "video-001.rgb.jpeg",
		"video-001.q50.410.jpeg", "video-001.q50.411.jpeg", "video-001.q50.422.progressive.jpeg", "video-001.q50.440.jpeg", "video-001.q50.444.jpeg"} {
		if d := distance(want, mustDecode(t, load(t, name), white)); d > 8 {
			t.Errorf("%s: mean distance to the PNG is %.2f levels", name, d)
		}
	}
	cmyk, twin := mustDecode(t, load(t, "video-001.cmyk.jpeg"), white), mustDecode(t, load(t, "video-001.cmyk.png"), white)
	if d := distance(cmyk, twin); d > 8 {
		t.Errorf("CMYK: mean distance to the PNG is %.2f levels", d)
	}
}

func TestBlendRounds(t *testing.T) {
	for v := range 256 {
		for a := range 256 {
			for _, bg := range []int{0, 77, 255} {
				want := uint8(math.Round(float64(v*a+bg*(255-a)) / 255))
				if got := blend(uint8(v), uint8(bg), uint8(a)); got != want {
					t.Fatalf("blend(%d, %d, %d) = %d, want %d", v, bg, a, got, want)
				}
			}
		}
	}
}

func TestGIFFirstFrameOnItsCanvas(t *testing.T) {
	frame := image.NewPaletted(image.Rect(2, 1, 4, 3), color.Palette{color.RGBA{255, 0, 0, 255}, color.RGBA{0, 0, 255, 255}})
	later := image.NewPaletted(image.Rect(0, 0, 6, 4), color.Palette{color.RGBA{0, 255, 0, 255}, color.RGBA{0, 0, 0, 255}})
	var b bytes.Buffer
	err := gif.EncodeAll(&b, &gif.GIF{
		Image: []*image.Paletted{frame, later}, Delay: []int{1, 1},
		Config: image.Config{Width: 6, Height: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	px := mustDecode(t, b.Bytes(), embedding.Processing{Background: [3]uint8{9, 8, 7}})
	for i := range 24 {
		x, y, want := i%6, i/6, [3]uint8{9, 8, 7}
		if (image.Point{x, y}).In(frame.Rect) {
			want = [3]uint8{255, 0, 0}
		}
		if got := [3]uint8(px.RGB[3*i:]); got != want {
			t.Errorf("pixel %d,%d is %v, want %v", x, y, got, want)
		}
	}
}

func TestWebPAnimationFirstFrame(t *testing.T) {
	still := load(t, "gopher-doc.1bpp.lossless.webp")
	want := mustDecode(t, still, white)
	w, h := want.Width, want.Height
	frame := func(x, y int) []byte {
		head := []byte{byte(x / 2), 0, 0, byte(y / 2), 0, 0, byte(w - 1), byte((w - 1) >> 8), 0, byte(h - 1), byte((h - 1) >> 8), 0, 100, 0, 0, 0}
		return riffChunk("ANMF", append(head, still[12:]...))
	}
	file := riffFile(vp8x(2, w+10, h+6), riffChunk("ANIM", make([]byte, 6)), frame(4, 2), riffChunk("ANMF", []byte("junk after the first frame")))
	px := mustDecode(t, file, embedding.Processing{Background: [3]uint8{1, 2, 3}})
	if px.Width != w+10 || px.Height != h+6 {
		t.Fatalf("canvas is %d x %d, want %d x %d", px.Width, px.Height, w+10, h+6)
	}
	for y := range h {
		got := px.RGB[3*((y+2)*px.Width+4):]
		if !bytes.Equal(got[:3*w], want.RGB[3*y*w:3*(y+1)*w]) {
			t.Fatalf("row %d of the frame differs", y)
		}
	}
	if got := [3]uint8(px.RGB); got != [3]uint8{1, 2, 3} {
		t.Errorf("outside the frame the colour is %v", got)
	}
	_, err := Inspect(riffFile(vp8x(2, w+2, h), frame(4, 0)), Limits{})
	wantKind(t, err, ErrBadImage)
}

// box is the reference of the demo model's scaling: the mean of each source box, rounded down.
func box(px []byte, w, h, n int) []byte {
	out := make([]byte, n*n*3)
	for y := range n {
		y0, y1 := y*h/n, max((y+1)*h/n, y*h/n+1)
		for x := range n {
			x0, x1 := x*w/n, max((x+1)*w/n, x*w/n+1)
			var s [3]int
			for v := y0; v < y1; v++ {
				for u := x0; u < x1; u++ {
					for c := range 3 {
						s[c] += int(px[(v*w+u)*3+c])
					}
				}
			}
			for c := range 3 {
				out[(y*n+x)*3+c] = byte(s[c] / ((y1 - y0) * (x1 - x0)))
			}
		}
	}
	return out
}

func TestSquareIsABoxFilter(t *testing.T) {
	data := load(t, "video-001.png")
	whole := mustDecode(t, data, white)
	for _, n := range []int{1, 7, 64, 103, 224} {
		p := embedding.Processing{Background: white.Background, Square: n}
		got, want := mustDecode(t, data, p), box(whole.RGB, whole.Width, whole.Height, n)
		if got.Width != n || got.Height != n || !bytes.Equal(got.RGB, want) {
			t.Errorf("square of %d differs from the reference", n)
		}
	}
}

// The reservation of every picture covers what its decoder allocates.
func TestReservationCoversTheDecoder(t *testing.T) {
	files := map[string][]byte{"large.png": encodePNG(t, flat(1500, 1100)), "large.jpeg": encodeJPEG(t, flat(1500, 1100))}
	for _, name := range pictures(t) {
		files[name] = load(t, name)
	}
	for name, data := range files {
		h, err := inspect(data, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := decodeFrame(t.Context(), data, h); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		const tables = 192 << 10 // inflate, Huffman and LZW state, independent of the size of a picture
		if used := int64(after.TotalAlloc - before.TotalAlloc); used > h.decoderBytes+tables {
			t.Errorf("%s: the decoder allocated %d bytes, %d were reserved", name, used, h.decoderBytes)
		}
	}
}

func TestDecodeStopsWithItsContext(t *testing.T) {
	cause := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, name := range []string{"video-001.jpeg", "video-001.png", "video-001.gif", "yellow_rose.lossy.webp"} {
		_, err := Decode(ctx, load(t, name), white, Limits{})
		var e *Error
		if !errors.Is(err, cause) || errors.As(err, &e) {
			t.Errorf("%s: got %v, want the cause of the context and no *Error", name, err)
		}
	}
}

func TestInfoSize(t *testing.T) {
	i := Info{Width: 30, Height: 40, Orientation: 6}
	f := func(p embedding.Processing, w, h int) {
		t.Helper()
		gw, gh := i.Size(p)
		if d := cmp.Diff([2]int{w, h}, [2]int{gw, gh}); d != "" {
			t.Error(d)
		}
	}
	f(embedding.Processing{}, 30, 40)
	f(embedding.Processing{IgnoreOrientation: true}, 40, 30)
	f(embedding.Processing{Square: 224, IgnoreOrientation: true}, 224, 224)
}
