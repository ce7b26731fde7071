// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/gguf"
	"afterimage/internal/media"
)

// fakeEncoder names the mean colour of each cell, as an ideal tower would, or always the same one.
type fakeEncoder struct {
	engine.Encoder // nil: what Verify does not need
	spec           engine.EncoderSpec
	words          [][]float32
	rows           int
	blind          bool
	err            error
}

func (e *fakeEncoder) Spec() engine.EncoderSpec { return e.spec }

func (e *fakeEncoder) Layout(context.Context, int, int) (embedding.Layout, error) {
	return embedding.Layout{Parts: []embedding.Part{{Tokens: []int32{1}}, {Rows: e.rows, Positions: e.rows}}}, nil
}

func (e *fakeEncoder) Encode(_ context.Context, px media.Pixels, dst []byte) error {
	cell := px.Width / grid
	for k := range grid * grid {
		var sum [3]float64
		for y := k / grid * cell; y < (k/grid+1)*cell; y++ {
			for x := k % grid * cell; x < (k%grid+1)*cell; x++ {
				for c := range sum {
					sum[c] += float64(px.RGB[3*(y*px.Width+x)+c])
				}
			}
		}
		n := float64(cell*cell) * 255
		c := colourOf(sum[0]/n, sum[1]/n, sum[2]/n)
		if e.blind {
			c = red
		}
		for i, v := range e.words[c] {
			binary.LittleEndian.PutUint32(dst[4*(k*len(e.words[c])+i):], math.Float32bits(v*1.1+0.01))
		}
	}
	return e.err
}

func newFake(t *testing.T) (*fakeEncoder, *gguf.File) {
	t.Helper()
	text, err := gguf.Open(fakeText(t, width, colours))
	if err != nil {
		t.Fatal(err)
	}
	words, err := wordEmbeddings(text)
	if err != nil {
		t.Fatal(err)
	}
	spec := engine.EncoderSpec{Cols: width, DType: embedding.Float32, Processing: embedding.Processing{Square: 112}}
	return &fakeEncoder{spec: spec, words: words, rows: grid * grid}, text
}

func TestVerifyTellsGoodFromBad(t *testing.T) {
	enc, text := newFake(t)
	var calls []int
	res, err := Verify(t.Context(), enc, text, 12, func(done, total int) { calls = append(calls, done, total) })
	if err != nil || res.Err() != nil || res.Pictures != 12 || res.Cells != 12*16 {
		t.Errorf("ideal encoder: %+v, %v, %v, want 192 cells and at least 85 %% right", res, err, res.Err())
	}
	if len(calls) != 24 || calls[0] != 1 || calls[22] != 12 || calls[23] != 12 {
		t.Errorf("progress calls %v, want 1..12 of 12", calls)
	}
	enc.blind = true
	res, err = Verify(t.Context(), enc, text, 12, nil)
	if err != nil || !errors.Is(res.Err(), ErrVerify) || res.Share() > 0.4 {
		t.Errorf("blind encoder: %+v, %v, %v, want ErrVerify", res, err, res.Err())
	}
}

func TestVerifyErrors(t *testing.T) {
	broken := errors.New("broken")
	for want, set := range map[string]func(*fakeEncoder){
		"rows of 64 torch.float32":  func(e *fakeEncoder) { e.spec.Cols = 64 },
		"rows of 576 torch.float16": func(e *fakeEncoder) { e.spec.DType = embedding.Float16 },
		"15 rows":                   func(e *fakeEncoder) { e.rows = 15 },
		"picture 1 of 3: broken":    func(e *fakeEncoder) { e.err = broken },
	} {
		enc, text := newFake(t)
		set(enc)
		if _, err := Verify(t.Context(), enc, text, 3, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if err := (VerifyResult{}).Err(); !errors.Is(err, ErrVerify) {
		t.Errorf("no pictures: %v, want ErrVerify", err)
	}
}

func TestColourOf(t *testing.T) {
	for name, rgb := range map[string][3]float64{
		"black": {0.05, 0.05, 0.05}, "white": {1, 1, 1}, "gray": {0.5, 0.5, 0.5}, "red": {0.9, 0.1, 0.1},
		"orange": {1, 0.55, 0.1}, "yellow": {1, 0.95, 0.2}, "green": {0.2, 0.7, 0.2}, "blue": {0.1, 0.2, 0.9},
		"purple": {0.5, 0.1, 0.7}, "pink": {1, 0.6, 0.75}, "brown": {0.5, 0.3, 0.1},
	} {
		if got := colours[colourOf(rgb[0], rgb[1], rgb[2])]; got != name {
			t.Errorf("colourOf(%v) = %s, want %s", rgb, got, name)
		}
	}
	for hue := 0.5; hue < 360; hue += 7 {
		c := fromHSV(hue, 0.6, 0.7)
		if h, s, v := toHSV(c[0], c[1], c[2]); math.Abs(h-hue)+math.Abs(s-0.6)+math.Abs(v-0.7) > 1e-9 {
			t.Errorf("hue %v, 0.6, 0.7 comes back as %v, %v, %v", hue, h, s, v)
		}
	}
}

// TestPaint checks that pictures are reproducible, and that all colours appear in them.
func TestPaint(t *testing.T) {
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	seen := make([]int, len(colours))
	for range 40 {
		px, cells := paint(a, 64)
		again, _ := paint(b, 64)
		if len(px.RGB) != 64*64*3 || !slices.Equal(px.RGB, again.RGB) {
			t.Fatalf("the same seed gives two pictures, of %d and %d bytes", len(px.RGB), len(again.RGB))
		}
		for _, c := range cells {
			seen[c]++
		}
	}
	for c, n := range seen {
		if n == 0 {
			t.Errorf("no cell of 640 is %s", colours[c])
		}
	}
}
