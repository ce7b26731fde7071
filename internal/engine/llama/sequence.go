// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// Sequence is one conversation in a context of its own. It implements engine.Sequence and is used by
// one goroutine.
//
// How tokens are grouped into native calls changes the last bits of the logits: a call of one token
// takes other kernels than a call of many. So the grouping must not depend on how the caller's text
// happens to be cut. A run of text, up to the next rows or the next logits, is decoded in full batches
// and a rest, whatever calls brought it: full batches at once, the rest when the run ends. That is also
// how mtmd groups the text of a whole prompt.
type Sequence struct {
	t       *Text
	slot    *slot
	pos     int     // next position in the context
	cells   int     // KV cells taken; more than positions with M-RoPE
	pending []int32 // the rest of a run of text, fewer than a batch
	logits  []float32
	err     error // a failure half way leaves the context in no known state
}

var _ engine.Sequence = (*Sequence)(nil)

// errSequenceClosed is what a closed sequence answers.
var errSequenceClosed = errors.New("llama: sequence is closed")

// begin prepares for n more cells and a move by as many positions as moves.
func (s *Sequence) begin(ctx context.Context, n, moves int) error {
	s.logits = nil
	if s.err != nil {
		return s.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	limit, taken := s.t.spec.Context, max(s.cells, s.pos)+len(s.pending)
	if more := max(n, moves); more > limit-taken {
		return fmt.Errorf("%w: %d of %d positions are taken, %d more do not fit", engine.ErrContextFull, taken, limit, more)
	}
	return nil
}

// fail makes a failure stick and returns it.
func (s *Sequence) fail(err error) error {
	s.err = err
	return err
}

// PrefillTokens appends tokens. ctx is checked between batches; after a failure that is not a refusal
// of the arguments the sequence is of no more use.
func (s *Sequence) PrefillTokens(ctx context.Context, toks []int32, logits bool) error {
	for i, tok := range toks {
		if tok < 0 || tok >= s.t.model.vocN {
			return fmt.Errorf("llama: token %d at index %d is not in the vocabulary of %d", tok, i, s.t.model.vocN)
		}
	}
	if err := s.begin(ctx, len(toks), len(toks)); err != nil {
		return err
	}
	if logits && len(toks)+len(s.pending) == 0 {
		return errors.New("llama: logits need at least one token before them")
	}
	s.pending = append(s.pending, toks...)
	if !logits {
		return s.flush(ctx, s.slot.batch, false)
	}
	if err := s.flush(ctx, 1, true); err != nil {
		return err
	}
	if s.logits = s.slot.lastLogits(); s.logits == nil {
		return s.fail(errors.New("llama: the library gave no logits"))
	}
	return nil
}

// flush decodes pending tokens as long as there are at least least of them.
func (s *Sequence) flush(ctx context.Context, least int, logits bool) error {
	done := 0
	for len(s.pending)-done >= least {
		n := min(len(s.pending)-done, s.slot.batch)
		if err := ctx.Err(); err != nil {
			return s.fail(err)
		}
		last := logits && done+n == len(s.pending)
		if err := s.slot.decodeTokens(s.pending[done:done+n], s.pos, last); err != nil {
			return s.fail(err)
		}
		done += n
		s.pos += n
		s.cells += n
	}
	s.pending = s.pending[:copy(s.pending, s.pending[done:])]
	return nil
}

// PrefillRows appends the rows of one row part. rows may lie anywhere in memory; it is read in place
// when it is aligned to 4 bytes.
func (s *Sequence) PrefillRows(ctx context.Context, part embedding.Part, rows []byte) error {
	if err := s.begin(ctx, part.Rows, part.Positions); err != nil {
		return err
	}
	values, err := s.checkRows(part, rows)
	if err != nil {
		return err
	}
	if err := s.flush(ctx, 1, false); err != nil {
		return err
	}
	if part.NonCausal {
		s.slot.setCausal(false)
		defer s.slot.setCausal(true)
	}
	cols := s.t.spec.Cols
	for i := 0; i < part.Rows; i += s.slot.batch {
		if err := ctx.Err(); err != nil {
			return s.fail(err)
		}
		n := min(part.Rows-i, s.slot.batch)
		s.slot.setRowPositions(part, s.pos, i, n)
		if err := s.slot.decodeRows(values[i*cols : (i+n)*cols]); err != nil {
			return s.fail(err)
		}
	}
	s.pos += part.Positions
	s.cells += part.Rows
	return nil
}

// checkRows refuses everything that native code would misread: it takes n rows of its own width from
// a bare address.
func (s *Sequence) checkRows(part embedding.Part, rows []byte) ([]float32, error) {
	cols := s.t.spec.Cols
	switch {
	case part.Rows <= 0 || len(part.Tokens) > 0:
		return nil, fmt.Errorf("%w: not a row part (%d rows, %d tokens)", engine.ErrBadRows, part.Rows, len(part.Tokens))
	case len(rows)%(4*cols) != 0 || len(rows)/(4*cols) != part.Rows:
		return nil, fmt.Errorf("%w: %d bytes, want %d rows of %d float32 (%d bytes)", engine.ErrBadRows, len(rows), part.Rows, cols, part.Rows*cols*4)
	case part.Positions <= 0:
		return nil, fmt.Errorf("%w: the part moves the position by %d", engine.ErrBadRows, part.Positions)
	case part.NonCausal && part.Rows > s.slot.batch:
		return nil, fmt.Errorf("%w: %d rows that attend in both directions must fit into one batch of %d; raise the batch size of the text engine",
			engine.ErrBadRows, part.Rows, s.slot.batch)
	}
	if err := s.checkMRoPE(part); err != nil {
		return nil, err
	}
	if err := embedding.CheckFinite(rows, embedding.Float32); err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrBadRows, err)
	}
	return floats(rows), nil
}

// checkMRoPE holds that positions have the dimensions that the model was built for.
func (s *Sequence) checkMRoPE(part embedding.Part) error {
	switch {
	case s.slot.mrope && len(part.MRoPE) != part.Rows:
		return fmt.Errorf("%w: %d multi-dimensional positions for %d rows, and this model needs one for each", engine.ErrBadRows, len(part.MRoPE), part.Rows)
	case !s.slot.mrope && part.MRoPE != nil:
		return fmt.Errorf("%w: rows with multi-dimensional positions, which this model does not have", engine.ErrBadRows)
	case !s.slot.mrope && part.Positions != part.Rows:
		return fmt.Errorf("%w: %d rows move the position by %d, and in this model each takes one", engine.ErrBadRows, part.Rows, part.Positions)
	}
	limit := uint32(s.t.spec.Context)
	for i, p := range part.MRoPE {
		if p.T > limit || p.Y > limit || p.X > limit || p.Z > limit {
			return fmt.Errorf("%w: row %d has position %v, beyond the context of %d", engine.ErrBadRows, i, p, limit)
		}
	}
	return nil
}

// Logits returns one value per token after a prefill that asked for them, or nil. The memory is the
// library's and valid until the next call.
func (s *Sequence) Logits() []float32 { return s.logits }

// Len returns the positions taken so far, those of tokens that wait for their batch included.
func (s *Sequence) Len() int { return s.pos + len(s.pending) }

// Close clears the context and gives it back. A second call does nothing.
func (s *Sequence) Close() {
	if s.slot == nil {
		return
	}
	slot := s.slot
	s.slot, s.logits, s.err = nil, nil, errSequenceClosed
	slot.clear()
	s.t.giveBack(slot)
}

// floats views b as float32, through a copy when it is not aligned.
func floats(b []byte) []float32 {
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 == 0 {
		return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
	}
	out := make([]float32, len(b)/4)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), len(b)), b)
	return out
}
