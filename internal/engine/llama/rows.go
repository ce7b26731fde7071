// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"unsafe"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// checkRows refuses everything that native code would misread: it takes n rows of its own width from
// a bare address.
func (r *runner) checkRows(part embedding.Part, first, n int, rows []byte) ([]float32, error) {
	cols := r.t.spec.Cols
	switch {
	case part.Rows <= 0 || len(part.Tokens) > 0:
		return nil, fmt.Errorf("%w: not a row part (%d rows, %d tokens)", engine.ErrBadRows, part.Rows, len(part.Tokens))
	case first < 0 || n <= 0 || n > r.slot.batch || n > part.Rows-first:
		return nil, fmt.Errorf("%w: rows %d to %d of %d, in calls of at most %d", engine.ErrBadRows, first, first+n, part.Rows, r.slot.batch)
	case len(rows)%(4*cols) != 0 || len(rows)/(4*cols) != n:
		return nil, fmt.Errorf("%w: %d bytes, want %d rows of %d float32 (%d bytes)", engine.ErrBadRows, len(rows), n, cols, n*cols*4)
	case part.Positions <= 0:
		return nil, fmt.Errorf("%w: the part moves the position by %d", engine.ErrBadRows, part.Positions)
	case part.NonCausal && n != part.Rows:
		return nil, fmt.Errorf("%w: %d of %d rows that attend in both directions; they need one call", engine.ErrBadRows, n, part.Rows)
	}
	if err := r.checkMRoPE(part); err != nil {
		return nil, err
	}
	if err := embedding.CheckFinite(rows, embedding.Float32); err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrBadRows, err)
	}
	return floats(rows), nil
}

// checkMRoPE holds that positions have the dimensions that the model was built for.
func (r *runner) checkMRoPE(part embedding.Part) error {
	switch {
	case r.slot.mrope && len(part.MRoPE) != part.Rows:
		return fmt.Errorf("%w: %d multi-dimensional positions for %d rows, and this model needs one for each", engine.ErrBadRows, len(part.MRoPE), part.Rows)
	case !r.slot.mrope && part.MRoPE != nil:
		return fmt.Errorf("%w: rows with multi-dimensional positions, which this model does not have", engine.ErrBadRows)
	case !r.slot.mrope && part.Positions != part.Rows:
		return fmt.Errorf("%w: %d rows move the position by %d, and in this model each takes one", engine.ErrBadRows, part.Rows, part.Positions)
	}
	limit := uint32(r.t.spec.Context)
	for i, p := range part.MRoPE {
		if p.T > limit || p.Y > limit || p.X > limit || p.Z > limit {
			return fmt.Errorf("%w: row %d has position %v, beyond the context of %d", engine.ErrBadRows, i, p, limit)
		}
	}
	return nil
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
