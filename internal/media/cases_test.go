// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"runtime"
	"slices"
	"sync"
	"testing"

	"afterimage/internal/embedding"
)

// pairDiffers checks that two files differ both in their digest and in what the engine sees.
func pairDiffers(t *testing.T, what string, a, b []byte) {
	t.Helper()
	if embedding.DigestOf(a) == embedding.DigestOf(b) {
		t.Errorf("%s: equal digests", what)
	}
	pa, pb := mustDecode(t, a, white), mustDecode(t, b, white)
	if pa.Width == pb.Width && bytes.Equal(pa.RGB, pb.RGB) {
		t.Errorf("%s: equal pixels", what)
	}
}

func TestK01PicturesThatLookDifferentDiffer(t *testing.T) {
	raw := make([]byte, 3*30*150)
	for i := range raw {
		raw[i] = byte(i * 7)
	}
	pairDiffers(t, "30x150 and 150x30 of one byte string", encodePNG(t, fromRGB(30, 150, raw)), encodePNG(t, fromRGB(150, 30, raw)))

	indexed := func(palette ...color.Color) []byte {
		m := image.NewPaletted(image.Rect(0, 0, 8, 8), palette)
		for i := range m.Pix {
			m.Pix[i] = byte(i % len(palette))
		}
		return encodePNG(t, m)
	}
	red, blue := color.NRGBA{255, 0, 0, 255}, color.NRGBA{0, 0, 255, 255}
	pairDiffers(t, "two palettes", indexed(red, blue), indexed(blue, red))
	pairDiffers(t, "two transparencies", indexed(red, color.NRGBA{0, 0, 255, 40}), indexed(red, color.NRGBA{0, 0, 255, 90}))
}

// The gateway may leave the background out of an identifier exactly when Alpha is false.
func TestK02OptionsThatChangeThePicture(t *testing.T) {
	rgba := image.NewNRGBA(image.Rect(0, 0, 4, 4))
	for i := range rgba.Pix {
		rgba.Pix[i] = 128
	}
	data, black := encodePNG(t, rgba), embedding.Processing{}
	if bytes.Equal(mustDecode(t, data, white).RGB, mustDecode(t, data, black).RGB) {
		t.Error("the background does not change a transparent picture")
	}
	if info, _ := Inspect(data, Limits{}); !info.Alpha {
		t.Error("Alpha is false for a transparent picture")
	}
	data = encodePNG(t, flat(4, 4))
	if !bytes.Equal(mustDecode(t, data, white).RGB, mustDecode(t, data, black).RGB) {
		t.Error("the background changes an opaque picture")
	}
	if info, _ := Inspect(data, Limits{}); info.Alpha {
		t.Error("Alpha is true for an opaque picture")
	}
	data = insert(encodeJPEG(t, fromRGB(2, 1, []byte{0, 0, 0, 255, 255, 255})), 2, segment(0xe1, append([]byte(exifPrefix), tiff(binary.BigEndian, 6)...)))
	if mustDecode(t, data, white).Width == mustDecode(t, data, embedding.Processing{IgnoreOrientation: true}).Width {
		t.Error("the orientation rule does not change a turned picture")
	}
}

func TestK05TheWholeFileCounts(t *testing.T) {
	pad := bytes.Repeat(segment(0xef, make([]byte, 8<<10)), 9)
	page := func(v byte) []byte { return insert(encodeJPEG(t, fromRGB(1, 1, []byte{v, v, v})), 2, pad) }
	a, b := page(10), page(240)
	if !bytes.Equal(a[:64<<10], b[:64<<10]) {
		t.Fatal("the first 64 KiB differ")
	}
	pairDiffers(t, "equal for 64 KiB", a, b)
}

func TestI01BrokenEXIF(t *testing.T) {
	plain := load(t, "video-001.jpeg")
	want := mustDecode(t, plain, white)
	good := tiff(binary.LittleEndian, 6)
	f := func(what string, exif []byte) {
		t.Helper()
		data := insert(plain, 2, segment(0xe1, append([]byte(exifPrefix), exif...)))
		info, err := Inspect(data, Limits{})
		if err != nil || info.Orientation != 1 {
			t.Errorf("%s: orientation %d, error %v", what, info.Orientation, err)
		}
		if !bytes.Equal(mustDecode(t, data, white).RGB, want.RGB) {
			t.Errorf("%s: the pixels differ", what)
		}
	}
	replace := func(at int, with ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], with)
		return b
	}
	f("garbage", []byte("this is no TIFF header at all"))
	f("empty", nil)
	f("directory out of range", replace(4, 0xff, 0xff, 0xff, 0xff))
	f("more entries than bytes", append(replace(8, 0xff, 0xff)[:8+2+12], make([]byte, 30)...))
	f("orientation 0", tiff(binary.BigEndian, 0))
	f("orientation 9", tiff(binary.BigEndian, 9))
	f("orientation of a wrong type", replace(8+2+12+2, 4))
	f("two orientations", replace(8+2+12+4, 2))
	for n := range len(good) - 12 {
		f("cut off", good[:n])
	}
}

// storedAs returns the picture as a camera held in the given orientation stores it.
func storedAs(m image.Image, orientation int) image.Image {
	w, h := m.Bounds().Dx(), m.Bounds().Dy()
	sw, sh := w, h
	if orientation >= 5 {
		sw, sh = h, w
	}
	out := image.NewNRGBA(image.Rect(0, 0, sw, sh))
	for y := range sh {
		for x := range sw {
			// The EXIF text names the visual side on which stored row 0 and column 0 lie.
			ux, uy := [9]int{}, [9]int{}
			ux[1], uy[1] = x, y         // top, left
			ux[2], uy[2] = w-1-x, y     // top, right
			ux[3], uy[3] = w-1-x, h-1-y // bottom, right
			ux[4], uy[4] = x, h-1-y     // bottom, left
			ux[5], uy[5] = y, x         // left, top
			ux[6], uy[6] = w-1-y, x     // right, top
			ux[7], uy[7] = w-1-y, h-1-x // right, bottom
			ux[8], uy[8] = y, h-1-x     // left, bottom
			out.Set(x, y, m.At(ux[orientation], uy[orientation]))
		}
	}
	return out
}

func TestI02Orientation(t *testing.T) {
	// Red on top, in flat blocks of the size of a JPEG coding unit, so that turning loses nothing.
	m := image.NewNRGBA(image.Rect(0, 0, 48, 80))
	for y := range 80 {
		for x := range 48 {
			c := color.NRGBA{uint8(40 * (x / 16)), uint8(30 * (y / 16)), 120, 255}
			if y < 16 {
				c = color.NRGBA{250, uint8(40 * (x / 16)), 0, 255}
			}
			m.SetNRGBA(x, y, c)
		}
	}
	want := mustDecode(t, encodeJPEG(t, m), white)
	exact := mustDecode(t, encodePNG(t, m), white)
	for o := 1; o <= 8; o++ {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			body := append([]byte(exifPrefix), tiff(order, uint16(o))...)
			jpg := insert(encodeJPEG(t, storedAs(m, o)), 2, segment(0xe1, body))
			checkUpright(t, "jpeg", o, jpg, want)
			png := encodePNG(t, storedAs(m, o))
			exif := pngChunk("eXIf", tiff(order, uint16(o)))
			checkUpright(t, "png", o, insert(png, 33, exif), exact)
			checkUpright(t, "png, eXIf after the pixels", o, insert(png, len(png)-12, exif), exact)
		}
	}
	// A second EXIF block changes nothing.
	twice := insert(encodeJPEG(t, m), 2, append(segment(0xe1, append([]byte(exifPrefix), tiff(binary.BigEndian, 1)...)), segment(0xe1, append([]byte(exifPrefix), tiff(binary.BigEndian, 3)...))...))
	checkUpright(t, "two EXIF blocks", 1, twice, want)
}

func checkUpright(t *testing.T, format string, orientation int, data []byte, want Pixels) {
	t.Helper()
	info, err := Inspect(data, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if info.Orientation != orientation || info.Width != want.Width || info.Height != want.Height {
		t.Errorf("%s, orientation %d: Inspect says %+v", format, orientation, info)
	}
	if got := mustDecode(t, data, white); got.Width != want.Width || !bytes.Equal(got.RGB, want.RGB) {
		t.Errorf("%s, orientation %d: the pixels differ", format, orientation)
	}
}

func TestI02OrientationOfWebP(t *testing.T) {
	still := load(t, "gopher-doc.1bpp.lossless.webp")
	up := mustDecode(t, still, white)
	for _, prefix := range []string{"", exifPrefix} {
		exif := riffChunk("EXIF", append([]byte(prefix), tiff(binary.LittleEndian, 3)...))
		got := mustDecode(t, riffFile(vp8x(8, up.Width, up.Height), still[12:], exif), white)
		n := len(got.RGB)
		for i := 0; i < n; i += 3 {
			if [3]byte(got.RGB[i:]) != [3]byte(up.RGB[n-3-i:]) {
				t.Fatalf("prefix %q: byte %d is not half a turn away", prefix, i)
			}
		}
	}
}

func TestI05CutOffAndForeignFiles(t *testing.T) {
	f := func(what string, data []byte, kind Kind) {
		t.Helper()
		_, err := Decode(t.Context(), data, white, Limits{})
		if err == nil {
			t.Fatalf("%s: no error", what)
		}
		wantKind(t, err, kind)
	}
	jpg, webp := load(t, "video-001.jpeg"), load(t, "yellow_rose.lossy.webp")
	f("JPEG less 128 bytes", jpg[:len(jpg)-128], ErrBadImage)
	progressive := load(t, "video-001.progressive.jpeg")
	f("progressive JPEG, cut", progressive[:len(progressive)/2], ErrBadImage)
	png := load(t, "video-001.png")
	f("PNG cut in IDAT", png[:len(png)/2], ErrBadImage)
	f("WebP, cut", webp[:len(webp)-100], ErrBadImage)
	f("WebP, cut with true lengths", riffFile(riffChunk("VP8 ", webp[20:len(webp)/2])), ErrBadImage)
	gif := load(t, "video-001.gif")
	f("GIF, cut", gif[:len(gif)/2], ErrBadImage)
	f("0 bytes", nil, ErrEmpty)
	f("HTML page", []byte("<!DOCTYPE html><html><body>not found</body></html>"), ErrUnsupported)
	f("text", []byte("not an image"), ErrUnsupported)
	f("SVG", []byte(`<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>`), ErrUnsupported)
	f("AVIF", []byte("\x00\x00\x00\x20ftypavif\x00\x00\x00\x00"), ErrUnsupported)
	f("JPEG of 12 bits", jpegHeader(100, 100, 12), ErrUnsupported)
	for _, whole := range [][]byte{jpg, png, webp, gif} {
		for n := range min(len(whole), 400) {
			if _, err := Decode(t.Context(), whole[:n], white, Limits{}); err == nil {
				t.Fatalf("%q cut to %d bytes is accepted", whole[:4], n)
			}
		}
	}
}

func TestI06SmallAndLongPictures(t *testing.T) {
	f := func(w, h int, kind Kind) {
		t.Helper()
		data := encodePNG(t, flat(w, h))
		_, inspected := Inspect(data, Limits{})
		_, err := Decode(t.Context(), data, white, Limits{})
		if kind == "" {
			if inspected != nil || err != nil {
				t.Errorf("%d x %d: %v, %v", w, h, inspected, err)
			}
			return
		}
		wantKind(t, inspected, kind)
		wantKind(t, err, kind)
	}
	f(1, 1, "")
	f(2, 2, "")
	f(26, 28, "")
	f(27, 257, "")
	f(1000, 5, "")
	f(5, 1000, "")
	f(1, 10000, ErrRatio)
	f(1001, 5, ErrRatio)
	f(1093, 5, ErrRatio)
	_, err := Inspect(encodePNG(t, flat(27, 257)), Limits{MinSide: 28})
	wantKind(t, err, ErrTooSmall)
}

// ihdr returns a PNG that claims a size and ends in an IDAT of nonsense.
func ihdr(w, h uint32) []byte {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)
	return slices.Concat([]byte(pngMagic), pngChunk("IHDR", append(b, 8, 6, 0, 0, 0)), pngChunk("IDAT", []byte("x\x9c")), pngChunk("IEND", nil))
}

func TestI07HostileHeaders(t *testing.T) {
	f := func(data []byte, kinds ...Kind) {
		t.Helper()
		_, err := Decode(t.Context(), data, white, Limits{})
		if err == nil || !slices.ContainsFunc(kinds, func(k Kind) bool { return errors.Is(err, k) }) {
			t.Errorf("got %v, want one of %v", err, kinds)
		}
	}
	f(ihdr(0xffffffff, 0xffffffff), ErrBadImage)
	f(ihdr(0x7fffffff, 0x7fffffff), ErrTooLarge)
	f(ihdr(0x80000001, 1), ErrBadImage)
	f(ihdr(0, 10), ErrBadImage)
	f(ihdr(0x10000, 0x10000), ErrTooLarge)
	f(ihdr(10, 10), ErrBadImage)
	f(jpegHeader(0, 10, 8), ErrBadImage)
	f(append([]byte("GIF89a\x00\x00\x00\x00\x00\x00\x00"), make([]byte, 20)...), ErrBadImage)
	good := load(t, "video-001.png")
	if _, err := Decode(t.Context(), good, white, Limits{}); err != nil {
		t.Errorf("the next picture fails: %v", err)
	}
}

func TestI07PanicIsARefusal(t *testing.T) {
	_, err := render(context.Background(), nil, header{format: "nothing", width: 1, height: 1}, [3]uint8{})
	wantKind(t, err, ErrBadImage)
}

// jpegHeader returns a JPEG that ends after its frame header and the start of a scan.
func jpegHeader(w, h uint16, bits byte) []byte {
	sof := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16([]byte{bits}, h), w)
	sof = append(sof, 3, 1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0)
	return slices.Concat([]byte{0xff, 0xd8}, segment(0xc2, sof), segment(0xda, []byte{3, 1, 0, 2, 0, 3, 0, 0, 63, 0}), make([]byte, 64))
}

// vp8l returns the chunk of a lossless stream that claims a size and holds nothing.
func vp8l(w, h uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{0x2f}, (w-1)|(h-1)<<14)
	return riffChunk("VP8L", append(b, 0, 0, 0))
}

// bombs are small files that ask for a lot of memory.
func bombs() map[string][]byte {
	return map[string][]byte{
		"28 bytes of WebP, 16384 x 16384":        riffFile(vp8l(16384, 16384)),
		"extended WebP with a larger inner size": riffFile(vp8x(0, 16, 16), vp8l(16384, 16384)),
		"animated WebP with a larger inner size": riffFile(vp8x(2, 16, 16), riffChunk("ANMF", append([]byte{6: 15, 9: 15, 15: 0}, vp8l(16384, 16384)...))),
		"extended WebP with a huge canvas":       riffFile(vp8x(0, 1<<24, 1<<24), vp8l(16, 16)),
		"PNG 19000 x 19000":                      ihdr(19000, 19000),
		"JPEG with a huge frame":                 jpegHeader(65500, 65500, 8),
		"GIF with a huge screen":                 append([]byte("GIF89a\xff\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\xff\xff\xff\xff\x00"), 8, 0),
	}
}

func TestS02BombsCostNothing(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const atOnce = 10
	for name, data := range bombs() {
		var wg sync.WaitGroup
		for range atOnce {
			wg.Go(func() {
				_, err := Decode(t.Context(), data, white, Limits{})
				if !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrBadImage) {
					t.Errorf("%s: got %v", name, err)
				}
			})
		}
		wg.Wait()
		if n := testing.AllocsPerRun(20, func() { _, _ = Inspect(data, Limits{}) }); n > 12 {
			t.Errorf("%s: Inspect makes %.0f allocations", name, n)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes were allocated for %d refusals", used, atOnce*len(bombs()))
	}
}

func TestS02DecodeBudget(t *testing.T) {
	data := encodePNG(t, flat(200, 100)) // 4 bytes per pixel decoded, 3 given
	_, err := Decode(t.Context(), data, white, Limits{DecodeBudgetBytes: 7*200*100 - 1})
	wantKind(t, err, ErrTooLarge)
	if _, err := Decode(t.Context(), data, white, Limits{DecodeBudgetBytes: 8 * 200 * 100}); err != nil {
		t.Fatal(err)
	}
	// While others hold the budget, a call waits for as long as its context lets it.
	release, err := decoding.reserve(t.Context(), 8*200*100, 8*200*100)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Decode(ctx, data, white, Limits{DecodeBudgetBytes: 8 * 200 * 100})
		done <- err
	}()
	for waiting := 0; waiting == 0; runtime.Gosched() {
		decoding.mu.Lock()
		waiting = decoding.waiters.Len()
		decoding.mu.Unlock()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	release()
	_, err = Inspect(data, Limits{MaxBytes: int64(len(data)) - 1})
	wantKind(t, err, ErrTooLarge)
	_, err = Inspect(data, Limits{MaxPixels: 200*100 - 1})
	wantKind(t, err, ErrTooLarge)
}
