// SPDX-License-Identifier: Apache-2.0

package media

// Limits bounds one image and the memory of all decoding. A zero field stands for its value in
// DefaultLimits.
type Limits struct {
	MaxBytes  int64 // of the file as received
	MaxPixels int   // width x height of the canvas
	MaxRatio  int   // of the longer side to the shorter one; a ratio of exactly MaxRatio is served
	MinSide   int   // pixels of the shorter side
	// DecodeBudgetBytes bounds what all Decode calls of the process hold at one time: the decoder's
	// own image and the pixels made from it. A call waits for its share; an image that needs more
	// than all of it is refused. The count is one per process; the ceiling is that of each caller.
	DecodeBudgetBytes int64
}

// DefaultLimits returns 20 MiB, 50 million pixels, ratio 200, side 1 and 768 MiB.
//
// 50 million pixels admits the 48-megapixel pictures of phones (8064 x 6048). Ratio 200 is where the
// resize rule of the Qwen family stops. The budget holds one picture of the full size in all but the
// costliest codings (progressive JPEG takes 10.5 bytes per pixel with 4:2:0 chroma, 18 without).
func DefaultLimits() Limits {
	return Limits{
		MaxBytes:          20 << 20,
		MaxPixels:         50e6,
		MaxRatio:          200,
		MinSide:           1,
		DecodeBudgetBytes: 768 << 20,
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	if l.MaxBytes == 0 {
		l.MaxBytes = d.MaxBytes
	}
	if l.MaxPixels == 0 {
		l.MaxPixels = d.MaxPixels
	}
	if l.MaxRatio == 0 {
		l.MaxRatio = d.MaxRatio
	}
	if l.MinSide == 0 {
		l.MinSide = d.MinSide
	}
	if l.DecodeBudgetBytes == 0 {
		l.DecodeBudgetBytes = d.DecodeBudgetBytes
	}
	return l
}

// checkBytes judges the size of a file.
func (l Limits) checkBytes(n int) error {
	switch {
	case n == 0:
		return refuse(ErrEmpty, "the file is empty")
	case int64(n) > l.MaxBytes:
		return refuse(ErrTooLarge, "%d bytes exceed the limit of %d bytes", n, l.MaxBytes)
	}
	return nil
}

// checkSize judges the sides, which are positive and below 1<<31.
func (l Limits) checkSize(width, height int) error {
	short, long := uint64(min(width, height)), uint64(max(width, height))
	switch {
	case short*long > uint64(l.MaxPixels):
		return refuse(ErrTooLarge, "%d x %d pixels exceed the limit of %d pixels", width, height, l.MaxPixels)
	case short < uint64(l.MinSide):
		return refuse(ErrTooSmall, "%d x %d pixels are under the limit of %d pixels per side", width, height, l.MinSide)
	case long > short*uint64(l.MaxRatio):
		return refuse(ErrRatio, "%d x %d pixels have an aspect ratio over the limit of %d", width, height, l.MaxRatio)
	}
	return nil
}
