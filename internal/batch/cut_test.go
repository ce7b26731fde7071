// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"testing"

	"pgregory.net/rapid"
)

// pieces cuts a run of total entries that become known in steps, and returns the pieces.
func pieces(t *rapid.T, block, total int) []int {
	var out []int
	done, known := 0, rapid.IntRange(0, total).Draw(t, "known")
	for done < total {
		allow := rapid.IntRange(1, 2*block).Draw(t, "allow")
		n := cut(block, done, known-done, allow, known == total)
		switch {
		case n == 0 && known == total:
			t.Fatalf("stuck at %d of %d", done, total)
		case n == 0:
			known = rapid.IntRange(known+1, total).Draw(t, "known")
			continue
		case n > known-done || n > block-done%block:
			t.Fatalf("a piece of %d at %d, of %d known in blocks of %d", n, done, known, block)
		case n > max(allow, 3):
			t.Fatalf("a piece of %d where %d are allowed", n, allow)
		}
		out = append(out, n)
		done += n
	}
	return out
}

// However a run is cut, an entry is computed alone only where a lone request computes it alone.
func TestNoPieceOfOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.IntRange(4, 16).Draw(t, "block")
		total := rapid.IntRange(1, 3*block).Draw(t, "total")
		done := 0
		for _, n := range pieces(t, block, total) {
			alone := done%block == 0 && done == total-1
			if n == 1 && !alone {
				t.Fatalf("entry %d of %d is computed alone", done, total)
			}
			if n > 1 && alone {
				t.Fatalf("entry %d of %d is not computed alone", done, total)
			}
			done += n
		}
	})
}

// What is kept of a run was computed as the new run computes it, and the rest can be.
func TestKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.IntRange(4, 16).Draw(t, "block")
		offset := rapid.IntRange(0, 3*block).Draw(t, "offset") // entries that are the same
		before := rapid.IntRange(offset, offset+2*block).Draw(t, "before")
		total := rapid.IntRange(offset, offset+2*block).Draw(t, "total")
		known := rapid.IntRange(offset, total).Draw(t, "known")
		last := total == known && total > 0 && rapid.Bool().Draw(t, "last")
		complete := known == total && (last || rapid.Bool().Draw(t, "complete"))
		m := keep(block, 100+offset, offset, known-offset, complete, last) - 100
		if m < 0 || m > offset {
			t.Fatalf("keeps %d of %d", m, offset)
		}
		if last && m == total {
			t.Fatal("nothing is left to compute")
		}
		alone := func(i, total int) bool { return i%block == 0 && i == total-1 }
		for i := range m {
			// A run that is complete has total entries; one that is not may get more.
			if complete && alone(i, before) != alone(i, total) {
				t.Fatalf("entry %d was computed alone in a run of %d, and is not in one of %d", i, before, total)
			}
		}
		rest := total - m
		if complete && rest == 1 && !alone(m, total) {
			t.Fatalf("entry %d of %d is left alone", m, total)
		}
		if m%block == 1 {
			t.Fatalf("ends one entry into a block: %d", m)
		}
	})
	f := func(want, offset, rest int, complete, last bool) {
		t.Helper()
		if got := keep(8, offset, offset, rest, complete, last); got != want {
			t.Errorf("offset %d, %d follow: keeps %d, want %d", offset, rest, got, want)
		}
	}
	f(6, 8, 0, true, true) // the last entry is computed, and not alone
	f(8, 8, 0, true, false)
	f(5, 5, 3, true, true)
	f(4, 5, 1, true, true)
	f(0, 1, 0, true, false) // another run may have gone on
	f(0, 1, 5, true, true)
	f(3, 5, 0, false, false) // what comes may be one entry
	f(0, 0, 5, true, true)
}
