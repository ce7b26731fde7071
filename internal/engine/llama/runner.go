// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// runner computes in one llama context, in which each sequence has cells of its own (a stream of the KV
// cache). Sharing cells would move a sequence to other addresses than it has alone, and with that the
// order in which its sums are rounded.
//
// Native kernels for one token and for several differ in the last bits where weights are F32, F16 or
// BF16. Such models decode one sequence per native call, so that a token does not depend on who decodes
// beside it; of quantised weights all sequences share a call. So they do on a GPU, whose kernels differ by the
// number of tokens: there the last bits depend on the company, and on how a prompt is cut.
type runner struct {
	t     *Text
	slot  *slot
	taken []int // KV cells of each sequence; more than positions with M-RoPE
	outs  []logitsAt
	kept  [][]float32
	size  stateSize // zero until it is measured
}

// logitsAt says where the logits of an entry are.
type logitsAt struct {
	index int32 // of the entry in the last native call; -1 is its last output
	kept  bool  // another call followed: they are in runner.kept
}

func newRunner(t *Text, s *slot) *runner {
	return &runner{t: t, slot: s, taken: make([]int, s.sequences)}
}

// Limits implements engine.Runner.
func (r *runner) Limits() engine.Limits {
	c := r.t.spec.Context
	return engine.Limits{Sequences: r.slot.sequences, Context: c, Cells: c * r.slot.sequences, Batch: r.slot.batch}
}

// begin checks that seq can take n more cells and move on to position end.
func (r *runner) begin(seq, end, n int) error {
	r.outs = r.outs[:0]
	if seq < 0 || seq >= r.slot.sequences {
		return fmt.Errorf("llama: sequence %d of %d", seq, r.slot.sequences)
	}
	if limit, taken := r.t.spec.Context, r.taken[seq]; n > limit-taken || end > limit {
		return fmt.Errorf("%w: %d of %d positions are taken, %d more to position %d do not fit", engine.ErrContextFull, taken, limit, n, end)
	}
	return nil
}

func (r *runner) checkTokens(toks []int32) error {
	for i, tok := range toks {
		if tok < 0 || tok >= r.t.model.vocN {
			return fmt.Errorf("llama: token %d at index %d is not in the vocabulary of %d", tok, i, r.t.model.vocN)
		}
	}
	return nil
}

// PrefillTokens implements engine.Runner.
func (r *runner) PrefillTokens(seq, pos int, toks []int32, logits bool) error {
	if err := r.t.enter(); err != nil {
		return err
	}
	defer r.t.leave()
	if err := r.checkTokens(toks); err != nil {
		return err
	}
	if n := len(toks); n == 0 || n > r.slot.batch {
		return fmt.Errorf("llama: %d tokens in one call, which takes at least one token and at most %d", n, r.slot.batch)
	}
	if err := r.begin(seq, pos+len(toks), len(toks)); err != nil {
		return err
	}
	r.slot.reset()
	for i, tok := range toks {
		r.slot.addToken(seq, pos+i, tok, logits && i == len(toks)-1)
	}
	if err := r.slot.decodeTokens(); err != nil {
		return err
	}
	r.taken[seq] += len(toks)
	if logits {
		r.outs = append(r.outs, logitsAt{index: -1})
	}
	return nil
}

// Decode implements engine.Runner.
func (r *runner) Decode(next []engine.Next) error {
	if err := r.t.enter(); err != nil {
		return err
	}
	defer r.t.leave()
	for _, n := range next {
		if err := r.checkTokens([]int32{n.Token}); err != nil {
			return err
		}
		if err := r.begin(n.Seq, n.Pos+1, 1); err != nil {
			return err
		}
	}
	width := r.slot.batch
	if !r.slot.together {
		width = 1
	}
	for len(next) > 0 {
		r.keepLogits()
		n := min(width, len(next))
		r.slot.reset()
		for i, x := range next[:n] {
			r.slot.addToken(x.Seq, x.Pos, x.Token, true)
			r.outs = append(r.outs, logitsAt{index: int32(i)})
		}
		if err := r.slot.decodeTokens(); err != nil {
			return err
		}
		for _, x := range next[:n] {
			r.taken[x.Seq]++
		}
		next = next[n:]
	}
	return nil
}

// keepLogits copies the logits of the last native call, which the next one overwrites.
func (r *runner) keepLogits() {
	for i := range r.outs {
		if r.outs[i].kept {
			continue
		}
		if i == len(r.kept) {
			r.kept = append(r.kept, nil)
		}
		r.kept[i] = append(r.kept[i][:0], r.Logits(i)...)
		r.outs[i].kept = true
	}
}

// Logits implements engine.Runner. It is nil where the library has none.
func (r *runner) Logits(i int) []float32 {
	switch {
	case i < 0 || i >= len(r.outs):
		return nil
	case r.outs[i].kept:
		return r.kept[i]
	}
	return r.slot.logits(r.outs[i].index)
}

// PrefillRows implements engine.Runner. rows may lie anywhere in memory; it is read in place when it is
// aligned to 4 bytes.
func (r *runner) PrefillRows(seq, pos int, part embedding.Part, first, n int, rows []byte) error {
	if err := r.t.enter(); err != nil {
		return err
	}
	defer r.t.leave()
	if err := r.begin(seq, pos+part.Positions, n); err != nil {
		return err
	}
	values, err := r.checkRows(part, first, n, rows)
	if err != nil {
		return err
	}
	if part.NonCausal {
		r.slot.setCausal(false)
		defer r.slot.setCausal(true)
	}
	r.slot.setRows(seq, pos, part, first, n)
	if err := r.slot.decodeRows(values); err != nil {
		return err
	}
	r.taken[seq] += n
	return nil
}

// Truncate implements engine.Runner.
func (r *runner) Truncate(seq, pos, cells int) bool {
	if r.t.enter() != nil {
		return false
	}
	defer r.t.leave()
	kept := r.slot.truncate(seq, pos)
	if !kept {
		cells = 0
	}
	r.taken[seq] = cells
	return kept
}

// Copy implements engine.Runner.
func (r *runner) Copy(dst, src int) {
	if r.t.enter() != nil {
		return
	}
	defer r.t.leave()
	r.slot.copy(dst, src)
	r.taken[dst] = r.taken[src]
}
