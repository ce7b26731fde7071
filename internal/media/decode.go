// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"

	"afterimage/internal/embedding"
)

// Pixels is a decoded, upright picture: 8-bit RGB, row by row, no padding.
type Pixels struct {
	Width, Height int
	RGB           []byte // Width*Height*3
}

// Decode turns the bytes of an image file into pixels, as p says: EXIF orientation is applied once
// unless p ignores it, transparent pixels are blended on p.Background, and p.Square stretches the
// result to a square. The first frame of an animation is decoded, on its whole canvas. Samples of 16
// bits keep their high byte.
//
// All limits are enforced from the header before anything is decoded, then Decode waits for its
// share of the decode budget. It stops when ctx ends, at the latest when the decoder asks for more
// of the file or the next rows are converted, and then returns the cause of ctx, not an *Error.
func Decode(ctx context.Context, data []byte, p embedding.Processing, l Limits) (Pixels, error) {
	l = l.withDefaults()
	h, err := inspect(data, l)
	if err != nil {
		return Pixels{}, err
	}
	if p.IgnoreOrientation {
		h.orientation = 1
	}
	side := int64(max(p.Square, 0))
	need := h.decoderBytes + 3*int64(h.width)*int64(h.height) + 3*side*side
	if need > l.DecodeBudgetBytes {
		return Pixels{}, refuse(ErrTooLarge, "decoding %d x %d pixels takes %d bytes, over the limit of %d bytes", h.width, h.height, need, l.DecodeBudgetBytes)
	}
	release, err := decoding.reserve(ctx, need, l.DecodeBudgetBytes)
	if err != nil {
		return Pixels{}, err
	}
	defer release()
	px, err := render(ctx, data, h, p.Background)
	if err != nil {
		return Pixels{}, err
	}
	if p.Square > 0 {
		px = square(px, p.Square)
	}
	return px, nil
}

// render decodes and converts. A panic of a decoder on hostile input becomes a refusal.
func render(ctx context.Context, data []byte, h header, background [3]uint8) (px Pixels, err error) {
	defer func() {
		if r := recover(); r != nil {
			px, err = Pixels{}, &Error{
				Kind: ErrBadImage,
				Msg:  fmt.Sprintf("Failed to load image: the %s file is corrupt", h.format),
				Err:  fmt.Errorf("decoder panic: %v", r),
			}
		}
	}()
	img, err := decodeFrame(ctx, data, h)
	if err == nil {
		px, err = upright(ctx, img, h, background)
	}
	if ctx.Err() != nil { // decoders wrap reader errors without keeping them
		return Pixels{}, fmt.Errorf("media: decoding a %s file: %w", h.format, context.Cause(ctx))
	}
	return px, err
}

// decodeFrame runs the decoder of h.format. The bounds of the result lie on the canvas of h.
func decodeFrame(ctx context.Context, data []byte, h header) (image.Image, error) {
	r := &contextReader{ctx: ctx, r: bytes.NewReader(data)}
	var img image.Image
	var err error
	want := image.Rect(0, 0, h.width, h.height)
	switch h.format {
	case "png":
		img, err = png.Decode(r)
	case "jpeg":
		img, err = jpeg.Decode(r)
	case "gif":
		img, err = gif.Decode(r) // first frame only, with its own bounds
		if err == nil && h.alpha && img.Bounds().In(want) {
			want = img.Bounds()
		}
	case "webp":
		r.r = h.frame.reader()
		img, err = webp.Decode(r)
		want = image.Rect(0, 0, h.frame.width, h.frame.height)
	}
	if err != nil {
		return nil, decoderError(h.format, err)
	}
	if img.Bounds() != want {
		return nil, refuse(ErrBadImage, "the %s file holds a picture of another size than its header says", h.format)
	}
	return img, nil
}

// decoderError classifies what a decoder said. Its text describes the format alone, never the
// machine, so it may reach the client.
func decoderError(format string, err error) error {
	kind, text := ErrBadImage, fmt.Sprintf("the %s file is corrupt (%v)", format, err)
	var unsupportedJPEG jpeg.UnsupportedError
	var unsupportedPNG png.UnsupportedError
	switch {
	case errors.As(err, &unsupportedJPEG), errors.As(err, &unsupportedPNG):
		kind, text = ErrUnsupported, err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		text = fmt.Sprintf("the %s file is cut off", format)
	}
	return &Error{Kind: kind, Msg: "Failed to load image: " + text, Err: err}
}

// contextReader ends with ctx, and hands out little at a time so that ctx is asked often: a scan of
// a progressive JPEG can be a few bytes long and cost a pass over the picture.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p[:min(len(p), 1024)])
}
