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
