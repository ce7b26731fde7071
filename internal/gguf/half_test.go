// SPDX-License-Identifier: Apache-2.0

package gguf

import (
	"math"
	"testing"
)

// TestHalf checks all 65,536 halves: each survives the way to float32 and back, and the point between
// two neighbours rounds to the even one, a hair beyond it to the nearer one.
func TestHalf(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := fromHalf(h)
		if got := toHalf(f); math.IsNaN(float64(f)) {
			if got&0x7fff != 0x7e00 {
				t.Fatalf("toHalf(NaN) = %#04x, want a quiet NaN", got)
			}
			continue
		} else if got != h {
			t.Fatalf("toHalf(fromHalf(%#04x)) = %#04x", h, got)
		}
		if h&0x7fff >= 0x7bff {
			continue // no finite neighbour above
		}
		next := fromHalf(h + 1)
		mid := (f + next) / 2 // exact: float32 has the bits
		if got, want := toHalf(mid), h+h&1; got != want {
			t.Fatalf("toHalf(%v) between %#04x and its neighbour = %#04x, want %#04x", mid, h, got, want)
		}
		if got := toHalf(math.Nextafter32(mid, next)); got != h+1 {
			t.Fatalf("toHalf beyond the middle after %#04x = %#04x, want %#04x", h, got, h+1)
		}
		if got := toHalf(math.Nextafter32(mid, f)); got != h {
			t.Fatalf("toHalf before the middle after %#04x = %#04x, want %#04x", h, got, h)
		}
	}
	for f, want := range map[float32]uint16{65504: 0x7bff, 65519: 0x7bff, 65520: 0x7c00, -1e30: 0xfc00, 1e-30: 0} {
		if got := toHalf(f); got != want {
			t.Errorf("toHalf(%v) = %#04x, want %#04x", f, got, want)
		}
	}
}
