// SPDX-License-Identifier: Apache-2.0

package embedding_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"afterimage/internal/embedding"
)

// golden is an object of testdata/store/objects.json, written by vLLM.
type golden struct {
	Key           embedding.Key
	DType         string
	Rows, Cols    int
	TotalBytes    int    `json:"total_bytes"`
	HeaderHex     string `json:"header_hex"`
	PayloadSHA256 string `json:"payload_sha256"`
	ObjectSHA256  string `json:"object_sha256"`
	File          string
}

func TestV3Golden(t *testing.T) {
	var objects []golden
	readJSON(t, "store/objects.json", &objects)
	if len(objects) != 12 {
		t.Fatalf("%d objects, want 12", len(objects))
	}
	for _, g := range objects {
		d, err := embedding.ParseDType(g.DType)
		if err != nil {
			t.Fatal(err)
		}
		l := embedding.Layout{Parts: []embedding.Part{{Rows: g.Rows}}}
		obj := make([]byte, embedding.V3.ObjectBytes(l, g.Cols, d))
		fillGolden(obj[embedding.V3.PayloadOffset(l):], d)
		if err := embedding.V3.Seal(obj, g.Key, embedding.Meta{Rows: g.Rows, Cols: g.Cols, DType: d, Layout: l}); err != nil {
			t.Fatalf("%s: %v", g.Key, err)
		}
		if len(obj) != g.TotalBytes || hex.EncodeToString(obj[:embedding.HeaderBytesV3]) != g.HeaderHex {
			t.Errorf("%s: %d bytes with header %x, want %d with %s", g.Key, len(obj), obj[:24], g.TotalBytes, g.HeaderHex)
		}
		if sum := sha256.Sum256(obj); hex.EncodeToString(sum[:]) != g.ObjectSHA256 {
			t.Errorf("%s: object sum %x, want %s", g.Key, sum, g.ObjectSHA256)
		}
		if g.File != "" && !bytes.Equal(obj, readFile(t, "store/"+g.File)) {
			t.Errorf("%s: differs from %s", g.Key, g.File)
		}
		m, payload, err := embedding.V3.Open(obj, g.Key, embedding.Contract{Rows: g.Rows, Cols: g.Cols, DType: d})
		if err != nil || m.Rows != g.Rows || m.Cols != g.Cols || m.DType != d {
			t.Errorf("%s: opens as %+v, %v", g.Key, m, err)
		}
		if sum := sha256.Sum256(payload); hex.EncodeToString(sum[:]) != g.PayloadSHA256 {
			t.Errorf("%s: payload sum %x, want %s", g.Key, sum, g.PayloadSHA256)
		}
	}
}

// fillGolden writes dtype(float32(i % 251) * 0.5), which every dtype holds exactly.
func fillGolden(b []byte, d embedding.DType) {
	le, size := binary.LittleEndian, d.Bytes()
	for i := range len(b) / size {
		bits := math.Float32bits(float32(i%251) * 0.5)
		switch d {
		case embedding.Float32:
			le.PutUint32(b[i*size:], bits)
		case embedding.BFloat16:
			le.PutUint16(b[i*size:], uint16(bits>>16))
		case embedding.Float16:
			if bits != 0 { // rebias the exponent from 127 to 15, drop 13 bits of the fraction
				bits -= (127 - 15) << 23
			}
			le.PutUint16(b[i*size:], uint16(bits>>13))
		}
	}
}

func TestV3OfRealEncoder(t *testing.T) {
	obj := readFile(t, "store/real_encoder_object.bin")
	c := embedding.Contract{Rows: 64, Cols: 128, DType: embedding.BFloat16}
	m, payload, err := embedding.V3.Open(obj, "any key", c)
	if err != nil {
		t.Fatal(err)
	}
	if m.PayloadBytes() != len(payload) || len(payload) != 64*128*2 {
		t.Errorf("payload of %d bytes for %+v", len(payload), m)
	}
	if err := embedding.CheckFinite(payload, m.DType); err != nil {
		t.Error(err)
	}
}

func TestA1Golden(t *testing.T) {
	var objects []struct {
		Name       string
		Key        embedding.Key
		DType      embedding.DType
		Rows, Cols int
		Layout     embedding.Layout
		Object     string
	}
	readJSON(t, "objects_a1.json", &objects)
	if len(objects) != 5 {
		t.Fatalf("%d objects, want 5", len(objects))
	}
	for _, g := range objects {
		want, err := hex.DecodeString(g.Object)
		if err != nil {
			t.Fatal(err)
		}
		obj := make([]byte, embedding.A1.ObjectBytes(g.Layout, g.Cols, g.DType))
		off := embedding.A1.PayloadOffset(g.Layout)
		for i := range obj[off:] {
			obj[off+i] = byte(i)
		}
		if off%64 != 0 {
			t.Errorf("%s: payload at %d, want a multiple of 64", g.Name, off)
		}
		meta := embedding.Meta{Rows: g.Rows, Cols: g.Cols, DType: g.DType, Layout: g.Layout}
		if err := embedding.A1.Seal(obj, g.Key, meta); err != nil {
			t.Fatalf("%s: %v", g.Name, err)
		}
		if !bytes.Equal(obj, want) {
			t.Errorf("%s:\n got %x\nwant %x", g.Name, obj, want)
		}
		m, payload, err := embedding.A1.Open(want, g.Key, embedding.Contract{MaxRows: g.Rows, Cols: g.Cols, DType: g.DType})
		if err != nil {
			t.Fatalf("%s: %v", g.Name, err)
		}
		if diff := cmp.Diff(meta, m); diff != "" || !bytes.Equal(payload, want[off:]) {
			t.Errorf("%s: opens otherwise (-sealed +opened)\n%s", g.Name, diff)
		}
	}
}

func TestSealRefuses(t *testing.T) {
	rows := func(n int) embedding.Layout { return embedding.Layout{Parts: []embedding.Part{{Rows: n}}} }
	f := func(p embedding.Protocol, size int, m embedding.Meta) {
		t.Helper()
		if err := p.Seal(make([]byte, size), "k", m); !errors.Is(err, embedding.ErrMalformed) {
			t.Errorf("got %v, want ErrMalformed", err)
		}
	}
	f(embedding.V3, 24, embedding.Meta{Cols: 1, DType: embedding.Float32})
	f(embedding.V3, 24, embedding.Meta{Rows: 1, DType: embedding.Float32})
	f(embedding.V3, 26, embedding.Meta{Rows: -1, Cols: -1, DType: embedding.Float16})
	f(embedding.V3, 28, embedding.Meta{Rows: 1, Cols: 1, DType: 5})
	f(embedding.V3, 27, embedding.Meta{Rows: 1, Cols: 1, DType: embedding.Float32})
	f(embedding.V3, 29, embedding.Meta{Rows: 1, Cols: 1, DType: embedding.Float32})
	f(embedding.V3, 0, embedding.Meta{Rows: 1, Cols: 1, DType: embedding.Float32})
	f(embedding.V3, 28, embedding.Meta{Rows: 1, Cols: 1, DType: embedding.Float32, Layout: rows(2)})
	f("v4", 28, embedding.Meta{Rows: 1, Cols: 1, DType: embedding.Float32})
	f(embedding.A1, 128+4, embedding.Meta{Rows: 1, Cols: 1, DType: embedding.Float32}) // no layout
	f(embedding.A1, 128+8, embedding.Meta{Rows: 1, Cols: 1, DType: embedding.Float32, Layout: rows(1)})
}

func TestObjectBytesOfNothing(t *testing.T) {
	one := embedding.Layout{Parts: []embedding.Part{{Rows: 1}}}
	for _, p := range []embedding.Protocol{embedding.V3, embedding.A1} {
		if n := p.ObjectBytes(embedding.Layout{}, 1, embedding.Float32); n != 0 {
			t.Errorf("%s: no rows take %d bytes", p, n)
		}
		if n := p.ObjectBytes(one, -1, embedding.Float32); n != 0 {
			t.Errorf("%s: -1 columns take %d bytes", p, n)
		}
	}
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
