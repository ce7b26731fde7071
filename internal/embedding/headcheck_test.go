// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"errors"
	"testing"

	"github.com/zeebo/xxh3"
)

// CheckHeadA1 needs neither key nor contract, and notices any change of the head.
func TestCheckHeadA1(t *testing.T) {
	m := Meta{Rows: 3, Cols: 8, DType: Float32, Layout: Layout{Parts: []Part{{Rows: 3}}}}
	obj := make([]byte, A1.ObjectBytes(m.Layout, m.Cols, m.DType))
	obj[len(obj)-1] = 9
	if err := A1.Seal(obj, "key", m); err != nil {
		t.Fatal(err)
	}
	payload, sum, err := CheckHeadA1(obj)
	if err != nil || len(payload) != 96 || sum != xxh3.Hash(payload) {
		t.Fatalf("%d bytes of payload with sum %x, %v; want 96 with %x", len(payload), sum, err, xxh3.Hash(payload))
	}
	for i := range len(obj) - len(payload) {
		obj[i] ^= 1
		if _, _, err := CheckHeadA1(obj); !errors.Is(err, ErrMalformed) {
			t.Errorf("with byte %d changed: %v, want ErrMalformed", i, err)
		}
		obj[i] ^= 1
	}
	if _, _, err := CheckHeadA1(obj[:len(obj)-1]); !errors.Is(err, ErrMalformed) {
		t.Errorf("cut short: %v, want ErrMalformed", err)
	}
	if !IsA1(obj) || IsA1(obj[:60]) || IsA1(make([]byte, 100)) {
		t.Error("IsA1 mistakes something")
	}
}

// OpenHead checks what Open does, but for the payload.
func TestOpenHead(t *testing.T) {
	l := Layout{Parts: []Part{{Rows: 3, Positions: 3}}}
	m := Meta{Rows: 3, Cols: 4, DType: Float32, Layout: l}
	c := Contract{Rows: 3, Cols: 4, DType: Float32}
	obj := make([]byte, A1.ObjectBytes(l, 4, Float32))
	if err := A1.Seal(obj, "k", m); err != nil {
		t.Fatal(err)
	}
	f := func(key Key, c Contract, want error) {
		t.Helper()
		if _, p, err := A1.OpenHead(obj, key, c); !errors.Is(err, want) || err == nil && len(p) != c.PayloadBytes() {
			t.Errorf("%d bytes, %v; want %v", len(p), err, want)
		}
	}
	f("k", c, nil)
	f("other", c, ErrForeign)
	f("k", Contract{Rows: 4, Cols: 4, DType: Float32}, ErrContract)
	obj[len(obj)-1] ^= 1
	f("k", c, nil) // not looked at
	if _, _, err := A1.Open(obj, "k", c); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Open: %v", err)
	}
	obj[70] ^= 1 // in the layout
	f("k", c, ErrMalformed)
}
