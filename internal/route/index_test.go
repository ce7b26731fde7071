// SPDX-License-Identifier: Apache-2.0

package route

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIndexIsAnLRU holds the index against a plain list of blocks in the order of use: what it says of a peer
// is the beginning of the prompt that the list has, and it never holds more than its limit.
func TestIndexIsAnLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 12
		x := NewIndex(limit)
		var list []uint64 // the latest last
		for range rapid.IntRange(1, 40).Draw(t, "prompts") {
			// Prompts of a tree: each step takes one of two branches.
			var blocks []uint64
			at := uint64(1)
			for range rapid.IntRange(0, 15).Draw(t, "length") {
				at = at<<1 | uint64(rapid.IntRange(0, 1).Draw(t, "branch"))
				blocks = append(blocks, at)
			}
			want := 0
			for want < len(blocks) && slices.Contains(list, blocks[want]) {
				want++
			}
			if got := x.Match("p", blocks); got != want {
				t.Fatalf("%d blocks of %v are held, want %d", got, blocks, want)
			}
			if x.Match("q", blocks) != 0 {
				t.Fatal("another peer holds some, too")
			}
			x.Add("p", blocks)
			for _, b := range slices.Backward(blocks[:min(limit, len(blocks))]) {
				list = append(slices.DeleteFunc(list, func(o uint64) bool { return o == b }), b)
			}
			list = list[max(0, len(list)-limit):]
			if n := len(x.peers["p"].at); n != len(list) || len(x.peers["p"].nodes) > 2*limit+2 {
				t.Fatalf("%d blocks in %d nodes, want %d", n, len(x.peers["p"].nodes), len(list))
			}
		}
		x.Forget("p")
		if x.Match("p", list) != 0 {
			t.Fatal("a peer that was forgotten holds some")
		}
	})
}

// TestIndexLimitOfAPeer: a peer that says how much it holds is believed.
func TestIndexLimitOfAPeer(t *testing.T) {
	x := NewIndex(100)
	x.SetLimit("small", 2)
	for _, peer := range []string{"small", "large"} {
		x.Add(peer, []uint64{1, 2, 3, 4})
	}
	if a, b := x.Match("small", []uint64{1, 2, 3, 4}), x.Match("large", []uint64{1, 2, 3, 4}); a != 2 || b != 4 {
		t.Errorf("%d and %d blocks, want 2 and 4", a, b)
	}
}

func BenchmarkIndex(b *testing.B) {
	x := NewIndex(8192)
	var prompts [64][]uint64
	for i := range prompts {
		for j := range 32 { // 4 KiB
			prompts[i] = append(prompts[i], uint64(i<<16|j+1))
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := prompts[i%len(prompts)]
		x.Match("p", p)
		x.Match("q", p)
		x.Add("p", p)
	}
}
