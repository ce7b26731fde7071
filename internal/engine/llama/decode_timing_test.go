// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"afterimage/internal/engine"
	"afterimage/internal/model"
)

// BenchmarkDecodeEight appends a token to eight sequences of a model of plain weights: one sequence per native call,
// as served, and several, which is what invariance to the company costs. "alone" and "two" count the logits, in per
// cent, whose bits are not those of one sequence per call, and of two.
func BenchmarkDecodeEight(b *testing.B) {
	const sequences = 8
	dir := b.TempDir()
	if err := model.WriteRandom(dir, model.RandomOptions{Size: model.Small, Seed: 1}); err != nil {
		b.Fatal(err)
	}
	lib, err := libraryDir()
	if err != nil {
		b.Fatal(err)
	}
	for _, group := range []int{1, 2, 4, sequences} {
		b.Run(fmt.Sprintf("%d per call", group), func(b *testing.B) {
			l, err := Open(lib, GPUOff)
			if err != nil {
				b.Fatal(err)
			}
			x, err := NewText(l, TextConfig{Model: filepath.Join(dir, model.TextFile), Slots: sequences, ContextTokens: 512})
			if err != nil {
				b.Fatal(err)
			}
			defer x.Close()
			next := make([]engine.Next, sequences)
			for i := range next {
				if err := x.runner.PrefillTokens(i, 0, tokens(100 + i)[i:], false); err != nil {
					b.Fatal(err)
				}
				next[i] = engine.Next{Seq: i, Pos: 100, Token: int32(i + 1)}
			}
			back := func() {
				for i := range next {
					x.runner.Truncate(i, 100, 100)
				}
			}
			step := func(group int) (out []float32) {
				for at := 0; at < sequences; at += group {
					x.runner.slot.together = group > 1
					if err := x.runner.Decode(next[at:][:group]); err != nil {
						b.Fatal(err)
					}
					for i := range group {
						out = append(out, x.runner.Logits(i)...)
					}
				}
				return out
			}
			differ := func(want []float32) (n float64) {
				for i, v := range step(group) {
					if math.Float32bits(v) != math.Float32bits(want[i]) {
						n++
					}
				}
				back()
				return 100 * n / float64(len(want))
			}
			one := step(1)
			back()
			two := step(2)
			back()
			fromOne, fromTwo := differ(one), differ(two)
			for b.Loop() {
				step(group)
				back()
			}
			b.ReportMetric(fromOne, "%alone")
			b.ReportMetric(fromTwo, "%two")
		})
	}
}
