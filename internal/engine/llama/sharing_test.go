// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"afterimage/internal/batch"
	"afterimage/internal/embedding"
	"afterimage/internal/model"
)

// mixed is a random prompt of text and rows of cols columns; equal seeds give equal ones.
func mixed(seed, cols int) []batch.Part {
	rng := rand.New(rand.NewPCG(uint64(seed), 3))
	text := func(n int) batch.Part { return batch.Part{Tokens: tokens(n + 1)[1:]} }
	out := []batch.Part{text(1 + rng.IntN(80))}
	for range rng.IntN(3) {
		n := 1 + rng.IntN(90)
		rows := make([]byte, 0, n*cols*4)
		for range n * cols {
			rows = binary.LittleEndian.AppendUint32(rows, math.Float32bits(rng.Float32()-0.5))
		}
		out = append(out, batch.Part{Layout: embedding.Layout{Parts: []embedding.Part{rowPart(n)}}, Data: rows}, text(1+rng.IntN(40)))
	}
	if seed%5 == 0 {
		out = append(out, text(600)) // longer than a batch
	}
	return out
}

// With weights of F32 and of F16, a request has the same bits alone and in any company, whatever of its
// prompt an earlier request left behind, and however its prompt is cut.
func TestSharingChangesNoBit(t *testing.T) {
	const requests, n = 14, 12
	for _, size := range []model.Size{model.Tiny, model.Small} {
		dir := t.TempDir()
		if err := model.WriteRandom(dir, model.RandomOptions{Size: size, Seed: 1}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, model.TextFile)
		run := func(slots, step int, order []int) []result {
			x := newText(t, TextConfig{Model: path, Slots: slots, ContextTokens: 1280})
			s := batch.New(x.Runner(), batch.Config{StepTokens: step})
			defer s.Close()
			out := make([]result, requests)
			var wg sync.WaitGroup
			for _, i := range order {
				ask := func() {
					r := result{}
					err := s.Ask(t.Context(), mixed(i%requests, x.Spec().Cols), func(l []float32) (int32, bool, error) {
						tok := r.take(l)
						return tok, len(r.Tokens) < n+i%requests, nil
					})
					if err != nil {
						t.Error(err)
					}
					if i < requests {
						out[i] = r
					}
				}
				if slots == 1 {
					ask()
				} else {
					wg.Go(ask)
				}
			}
			wg.Wait()
			return out
		}
		var want []result
		for i := range requests {
			want = append(want, run(1, 512, []int{i})[i])
		}
		order := rand.New(rand.NewPCG(7, 7)).Perm(2 * requests) // each prompt twice
		for _, c := range [][2]int{{1, 512}, {2, 33}, {4, 128}, {8, 512}} {
			for i, got := range run(c[0], c[1], order) {
				if !slices.Equal(got.Tokens, want[i].Tokens) || !slices.EqualFunc(got.Logits, want[i].Logits, slices.Equal[[]uint32]) {
					t.Errorf("%s, %d sequences, steps of %d: request %d differs from step %d on", size, c[0], c[1], i, firstDifference(got, want[i]))
				}
			}
		}
	}
}
