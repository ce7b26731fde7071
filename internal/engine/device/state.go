// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/binary"
	"fmt"

	"afterimage/internal/engine"
)

var _ engine.States = (*runner)(nil)

// stateBytesPerCell is what the modelled state of a position takes: that of a model of 135 million parameters,
// which is 24 KiB, would only slow tests down.
const stateBytesPerCell = 64

// StateBytes implements engine.States.
func (r *runner) StateBytes(cells int) (int, error) { return stateBytesPerCell * (cells + 1), nil }

// Save implements engine.States. The device takes no time for it.
func (r *runner) Save(seq int, dst []byte) (int, error) {
	s := &r.seqs[seq]
	n := stateBytesPerCell * len(s.states)
	if n > len(dst) {
		return 0, fmt.Errorf("device: a state of %d bytes in %d", n, len(dst))
	}
	for i, v := range s.states {
		cell := dst[i*stateBytesPerCell:][:stateBytesPerCell]
		clear(cell)
		binary.LittleEndian.PutUint64(cell, v)
	}
	return n, nil
}

// Restore implements engine.States.
func (r *runner) Restore(seq, pos, cells int, state []byte) error {
	s := &r.seqs[seq]
	*s = sequence{states: s.states[:1]}
	switch {
	case pos != cells || len(state) != stateBytesPerCell*(cells+1):
		return fmt.Errorf("%w: %d bytes for %d cells up to position %d", engine.ErrBadState, len(state), cells, pos)
	case cells > r.t.cfg.Context:
		return fmt.Errorf("%w: %d of %d", engine.ErrContextFull, cells, r.t.cfg.Context)
	}
	for i := range cells {
		s.states = append(s.states, binary.LittleEndian.Uint64(state[(i+1)*stateBytesPerCell:]))
	}
	return nil
}
