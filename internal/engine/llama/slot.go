// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"runtime"
	"unsafe"

	"afterimage/internal/embedding"
)

// Values of llama_rope_type whose positions have several dimensions.
const (
	ropeMRoPE  = 8
	ropeIMRoPE = 40
)

// mropePlanes is how many positions each row of an M-RoPE model has.
const mropePlanes = 4

// slot is one llama context and the arrays of its batches, which live as long as the context so that
// native code only ever sees memory that stays where it is.
type slot struct {
	model *textModel
	ctx   cContext
	batch int // most entries of one native call
	mrope bool

	pin    runtime.Pinner
	tokens []int32
	pos    []int32 // mropePlanes planes
	nSeqID []int32
	seqID  []*int32
	want   []int8 // per entry, whether its logits are wanted
}

// newSlot makes a context for one sequence.
func newSlot(m *textModel, cfg TextConfig) (*slot, error) {
	p := m.lib.c.contextDefault()
	p.nCtx, p.nSeqMax = uint32(cfg.ContextTokens), 1
	// Computing a batch in one piece (n_ubatch) is what non-causal parts demand.
	batch := min(cfg.BatchTokens, cfg.ContextTokens)
	p.nBatch, p.nUbatch = uint32(batch), uint32(batch)
	p.nThreads, p.nThreadsBatch = int32(cfg.Threads), int32(cfg.Threads)
	p.flashAttn = 0 // on and off differ in bits, and auto may choose either
	mark := m.lib.log.mark()
	c := m.lib.c.contextNew(m.ptr, p)
	if c == 0 {
		return nil, fmt.Errorf("llama: no context of %d tokens for %s: %s; lower the context size or the number of slots",
			cfg.ContextTokens, m.name, m.lib.log.explain(mark))
	}
	rope := m.lib.c.modelRopeType(m.ptr)
	s := &slot{
		model: m, ctx: c, batch: batch, mrope: rope == ropeMRoPE || rope == ropeIMRoPE,
		tokens: make([]int32, batch), pos: make([]int32, mropePlanes*batch),
		nSeqID: make([]int32, batch), seqID: make([]*int32, batch), want: make([]int8, batch),
	}
	zero := new(int32) // the one sequence of the context
	for i := range s.seqID {
		s.nSeqID[i], s.seqID[i] = 1, zero
	}
	for _, p := range []any{zero, &s.tokens[0], &s.pos[0], &s.nSeqID[0], &s.seqID[0], &s.want[0]} {
		s.pin.Pin(p)
	}
	return s, nil
}

func (s *slot) free() {
	s.model.lib.c.contextFree(s.ctx)
	s.pin.Unpin()
}

func (s *slot) clear() { s.model.lib.c.memoryClear(s.model.lib.c.memory(s.ctx), true) }

func (s *slot) setCausal(on bool) { s.model.lib.c.setCausal(s.ctx, on) }

// decodeTokens runs at most batch tokens from position pos on.
func (s *slot) decodeTokens(toks []int32, pos int, logits bool) error {
	copy(s.tokens, toks)
	for i := range toks {
		s.pos[i] = int32(pos + i)
	}
	b := s.newBatch(len(toks))
	b.token = &s.tokens[0]
	if logits {
		s.want[len(toks)-1] = 1
	}
	return s.decode(b)
}

// setRowPositions writes, for the next decodeRows, the positions of rows first to first+n of a part that begins at pos.
func (s *slot) setRowPositions(part embedding.Part, pos, first, n int) {
	if !s.mrope {
		for i := range n {
			s.pos[i] = int32(pos + first + i)
		}
		return
	}
	for i := range n {
		p := part.MRoPE[first+i]
		s.pos[i] = int32(pos + int(p.T))
		s.pos[n+i] = int32(pos + int(p.Y))
		s.pos[2*n+i] = int32(pos + int(p.X))
		s.pos[3*n+i] = int32(p.Z) // not a position in the prompt
	}
}

// decodeRows runs at most batch rows, whose positions are set.
func (s *slot) decodeRows(values []float32) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&values[0])
	b := s.newBatch(len(values) / s.model.cols)
	b.rows = &values[0]
	return s.decode(b)
}

// newBatch describes n entries, without logits.
func (s *slot) newBatch(n int) cBatch {
	clear(s.want)
	return cBatch{nTokens: int32(n), pos: &s.pos[0], nSeqID: &s.nSeqID[0], seqID: &s.seqID[0], logits: &s.want[0]}
}

func (s *slot) decode(b cBatch) error {
	if int(b.nTokens) > s.batch { // the library would abort the process
		return fmt.Errorf("llama: batch of %d entries exceeds %d", b.nTokens, s.batch)
	}
	mark := s.model.lib.log.mark()
	if code := s.model.lib.c.decode(s.ctx, b); code != 0 {
		return fmt.Errorf("llama: decoding %d entries failed (code %d): %s", b.nTokens, code, s.model.lib.log.explain(mark))
	}
	return nil
}

// lastLogits returns the logits of the last output, in the library's memory.
func (s *slot) lastLogits() []float32 {
	p := s.model.lib.c.logits(s.ctx, -1)
	if p == nil {
		return nil
	}
	return unsafe.Slice(p, s.model.vocN)
}
