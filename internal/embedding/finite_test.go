// SPDX-License-Identifier: Apache-2.0

package embedding_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"afterimage/internal/embedding"
)

// notFinite and finite are bit patterns at the edges of each dtype.
var (
	notFinite = map[embedding.DType][]uint32{
		embedding.Float32:  {0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000, 0xffffffff},
		embedding.Float16:  {0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xffff},
		embedding.BFloat16: {0x7f80, 0xff80, 0x7f81, 0x7fc0, 0xffff},
	}
	finite = map[embedding.DType][]uint32{
		embedding.Float32:  {0, 0x80000000, 1, 0x807fffff, 0x3f800000, 0x7f7fffff, 0xff7fffff},
		embedding.Float16:  {0, 0x8000, 1, 0x83ff, 0x3c00, 0x7bff, 0xfbff},
		embedding.BFloat16: {0, 0x8000, 1, 0x807f, 0x3f80, 0x7f7f, 0xff7f},
	}
)

func put(b []byte, i int, d embedding.DType, bits uint32) {
	if d == embedding.Float32 {
		binary.LittleEndian.PutUint32(b[4*i:], bits)
	} else {
		binary.LittleEndian.PutUint16(b[2*i:], uint16(bits))
	}
}

// One bad element is found wherever it stands, with every neighbour that could hide it.
func TestCheckFinite(t *testing.T) {
	for d, bad := range notFinite {
		for _, n := range []int{1, 2, 3, 5, 8, 15, 16, 17, 33} {
			b := make([]byte, n*d.Bytes())
			for _, fill := range finite[d] {
				for i := range n {
					put(b, i, d, fill)
				}
				if err := embedding.CheckFinite(b, d); err != nil {
					t.Fatalf("%v, %d of %#x: %v", d, n, fill, err)
				}
				for i := range n {
					for _, bits := range bad {
						put(b, i, d, bits)
						err := embedding.CheckFinite(b, d)
						if !errors.Is(err, embedding.ErrNotFinite) || !strings.Contains(err.Error(), fmt.Sprintf("element %d ", i)) {
							t.Fatalf("%v, %#x at %d of %d: %v", d, bits, i, n, err)
						}
					}
					put(b, i, d, fill)
				}
			}
		}
	}
}

// Every 16-bit pattern agrees with the definition.
func TestCheckFiniteEveryBFloat16(t *testing.T) {
	var b [2]byte
	for bits := range 1 << 16 {
		v := float64(math.Float32frombits(uint32(bits) << 16))
		put(b[:], 0, embedding.BFloat16, uint32(bits))
		got, want := embedding.CheckFinite(b[:], embedding.BFloat16) == nil, !math.IsNaN(v) && !math.IsInf(v, 0)
		if got != want {
			t.Fatalf("%#04x is finite: got %v, want %v", bits, got, want)
		}
	}
}

func TestCheckFiniteNamesTheFirst(t *testing.T) {
	b := make([]byte, 4*5000)
	put(b, 4321, embedding.Float32, 0x7f800000)
	put(b, 4999, embedding.Float32, 0x7f800000)
	if err := embedding.CheckFinite(b, embedding.Float32); err == nil || !strings.Contains(err.Error(), "element 4321 ") {
		t.Errorf("got %v, want element 4321", err)
	}
}

func TestCheckFiniteRefusesLengths(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		if err := embedding.CheckFinite(make([]byte, n), embedding.Float32); !errors.Is(err, embedding.ErrMalformed) {
			t.Errorf("%d bytes of float32: got %v, want ErrMalformed", n, err)
		}
	}
	if err := embedding.CheckFinite(make([]byte, 4), 3); !errors.Is(err, embedding.ErrMalformed) {
		t.Errorf("unknown dtype: got %v, want ErrMalformed", err)
	}
}

func BenchmarkCheckFinite(b *testing.B) {
	for _, d := range []embedding.DType{embedding.Float32, embedding.Float16} {
		b.Run(d.String(), func(b *testing.B) {
			payload := make([]byte, 1<<20)
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				if err := embedding.CheckFinite(payload, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkOpenA1(b *testing.B) {
	l := embedding.Layout{Parts: []embedding.Part{{Tokens: []int32{1}}, {Rows: 1024, Positions: 1024}, {Tokens: []int32{2}}}}
	obj := make([]byte, embedding.A1.ObjectBytes(l, 1024, embedding.Float32))
	if err := embedding.A1.Seal(obj, sampleKey, embedding.Meta{Rows: 1024, Cols: 1024, DType: embedding.Float32, Layout: l}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(obj)))
	for b.Loop() {
		if _, _, err := embedding.A1.Open(obj, sampleKey, embedding.Contract{Rows: 1024, Cols: 1024, DType: embedding.Float32}); err != nil {
			b.Fatal(err)
		}
	}
}
