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

// slot is one llama context of several sequences and the arrays of its batches, which live as long as
// the context so that native code only ever sees memory that stays where it is.
type slot struct {
	model     *textModel
	ctx       cContext
	memory    uintptr
	sequences int
	batch     int // most entries of one native call
	mrope     bool
	together  bool // several sequences share a call; see runner

	pin    runtime.Pinner
	n      int // entries of the batch that is being made
	tokens []int32
	pos    []int32 // mropePlanes planes
	nSeqID []int32
	seqID  []*int32
	ids    []int32 // what seqID points at
	want   []int8  // per entry, whether its logits are wanted
}

// newSlot makes a context of cfg.Slots sequences.
func newSlot(m *textModel, cfg TextConfig) (*slot, error) {
	p := m.lib.c.contextDefault()
	p.nCtx, p.nSeqMax = uint32(cfg.ContextTokens*cfg.Slots), uint32(cfg.Slots)
	p.kvUni = 0 // see runner
	// Computing a batch in one piece (n_ubatch) is what non-causal parts demand.
	batch := max(min(cfg.BatchTokens, cfg.ContextTokens), cfg.Slots)
	p.nBatch, p.nUbatch = uint32(batch), uint32(batch)
	p.nThreads, p.nThreadsBatch = int32(cfg.Threads), int32(cfg.Threads)
	p.flashAttn = 0 // on and off differ in bits, and auto may choose either
	mark := m.lib.log.mark()
	c := m.lib.c.contextNew(m.ptr, p)
	if c == 0 {
		return nil, fmt.Errorf("llama: no context of %d x %d tokens for %s: %s; lower the context size or the number of slots%s",
			cfg.Slots, cfg.ContextTokens, m.name, m.lib.log.explain(mark), m.lib.fewerLayers(m.layers))
	}
	rope := m.lib.c.modelRopeType(m.ptr)
	s := &slot{
		model: m, ctx: c, memory: m.lib.c.memory(c), sequences: cfg.Slots, batch: batch,
		mrope: rope == ropeMRoPE || rope == ropeIMRoPE, together: m.quantised || m.layers > 0,
		tokens: make([]int32, batch), pos: make([]int32, mropePlanes*batch),
		nSeqID: make([]int32, batch), seqID: make([]*int32, batch), ids: make([]int32, batch), want: make([]int8, batch),
	}
	for i := range s.seqID {
		s.nSeqID[i], s.seqID[i] = 1, &s.ids[i]
	}
	for _, p := range []any{&s.tokens[0], &s.pos[0], &s.nSeqID[0], &s.seqID[0], &s.ids[0], &s.want[0]} {
		s.pin.Pin(p)
	}
	return s, nil
}

func (s *slot) free() {
	s.model.lib.c.contextFree(s.ctx)
	s.pin.Unpin()
}

// truncate drops the cells of seq from position pos on. Memories of some kinds cannot drop a part of
// what they hold: then it drops all and returns false.
func (s *slot) truncate(seq, pos int) bool {
	if pos > 0 && s.model.lib.c.memoryRemove(s.memory, int32(seq), int32(pos), -1) {
		return true
	}
	s.model.lib.c.memoryRemove(s.memory, int32(seq), -1, -1)
	return pos == 0
}

// copy makes dst equal to src. The library copies between sequences as wholes only.
func (s *slot) copy(dst, src int) {
	s.truncate(dst, 0)
	s.model.lib.c.memoryCopy(s.memory, int32(src), int32(dst), -1, -1)
}

func (s *slot) setCausal(on bool) { s.model.lib.c.setCausal(s.ctx, on) }

// reset begins a batch.
func (s *slot) reset() {
	s.n = 0
	clear(s.want)
}

// addToken adds a token to the batch, which must have room.
func (s *slot) addToken(seq, pos int, tok int32, logits bool) {
	s.tokens[s.n], s.pos[s.n], s.ids[s.n] = tok, int32(pos), int32(seq)
	if logits {
		s.want[s.n] = 1
	}
	s.n++
}

// decodeTokens runs the tokens that were added.
func (s *slot) decodeTokens() error {
	b := s.newBatch()
	b.token = &s.tokens[0]
	return s.decode(b)
}

// setRows makes the batch of rows first to first+n of a part that begins at pos.
func (s *slot) setRows(seq, pos int, part embedding.Part, first, n int) {
	s.reset()
	s.n = n
	for i := range n {
		s.ids[i] = int32(seq)
	}
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

// decodeRows runs the rows that were set.
func (s *slot) decodeRows(values []float32) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&values[0])
	b := s.newBatch()
	b.rows = &values[0]
	return s.decode(b)
}

func (s *slot) newBatch() cBatch {
	return cBatch{nTokens: int32(s.n), pos: &s.pos[0], nSeqID: &s.nSeqID[0], seqID: &s.seqID[0], logits: &s.want[0]}
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

// logits returns the logits of an entry, in the library's memory.
func (s *slot) logits(entry int32) []float32 {
	p := s.model.lib.c.logits(s.ctx, entry)
	if p == nil {
		return nil
	}
	return unsafe.Slice(p, s.model.vocN)
}
