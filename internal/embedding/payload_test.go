// SPDX-License-Identifier: Apache-2.0

package embedding_test

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"afterimage/internal/embedding"
)

// TestCheckPayload: one pass finds what Open and CheckFinite find, at any place of a payload of several
// blocks, and a damaged payload is called corrupt even where it looks like NaN.
func TestCheckPayload(t *testing.T) {
	const rows, cols = 700, 33 // 92,400 bytes: five blocks and a bit
	l := embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}
	m := embedding.Meta{Rows: rows, Cols: cols, DType: embedding.Float32, Layout: l}
	for _, p := range []embedding.Protocol{embedding.A1, embedding.V3} {
		off := p.PayloadOffset(l)
		for _, at := range []int{0, 1, 4095, 4096, 12345, rows*cols - 1} {
			obj := make([]byte, p.ObjectBytes(l, cols, embedding.Float32))
			seal := func() {
				if err := p.Seal(obj, "k", m); err != nil {
					t.Fatal(err)
				}
			}
			seal()
			if err := p.CheckPayload(obj, m.DType); err != nil {
				t.Fatalf("%s: a good object: %v", p, err)
			}
			binary.LittleEndian.PutUint32(obj[off+4*at:], math.Float32bits(float32(math.NaN())))
			if err := p.CheckPayload(obj, m.DType); p == embedding.A1 && !errors.Is(err, embedding.ErrCorrupt) {
				t.Errorf("damaged at element %d: %v, want corrupt", at, err)
			}
			seal()
			err := p.CheckPayload(obj, m.DType)
			if want := embedding.CheckFinite(obj[off:], m.DType); !errors.Is(err, embedding.ErrNotFinite) || !strings.Contains(err.Error(), want.Error()) {
				t.Errorf("%s, NaN at element %d: %v, want %v", p, at, err, want)
			}
		}
		for n := range 64 {
			if err := p.CheckPayload(make([]byte, n), m.DType); n < 24 && !errors.Is(err, embedding.ErrMalformed) {
				t.Errorf("%s, %d bytes: %v", p, n, err)
			}
		}
	}
}

func BenchmarkCheckPayload(b *testing.B) {
	l := embedding.Layout{Parts: []embedding.Part{{Rows: 4096, Positions: 4096}}}
	m := embedding.Meta{Rows: 4096, Cols: 1920, DType: embedding.Float32, Layout: l}
	obj := make([]byte, embedding.A1.ObjectBytes(l, m.Cols, m.DType))
	if err := embedding.A1.Seal(obj, "k", m); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(obj)))
	for b.Loop() {
		if err := embedding.A1.CheckPayload(obj, m.DType); err != nil {
			b.Fatal(err)
		}
	}
}
