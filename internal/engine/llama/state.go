// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"runtime"

	"afterimage/internal/engine"
)

var _ engine.States = (*runner)(nil)

// stateSize says what the states of a model take: it grows by the same number of bytes with each cell. Memories
// that forget cells take less.
type stateSize struct{ base, perCell int }

// StateBytes implements engine.States. The library tells the size of what a sequence holds only, so the first
// call computes a few tokens.
func (r *runner) StateBytes(cells int) (int, error) {
	if r.size == (stateSize{}) {
		if err := r.measure(); err != nil {
			return 0, fmt.Errorf("llama: measuring a state: %w", err)
		}
	}
	return r.size.base + cells*r.size.perCell, nil
}

// measure compares the states of two tokens and of four.
func (r *runner) measure() error {
	defer r.Truncate(0, 0, 0)
	var bytes [2]int
	for i := range bytes {
		if err := r.PrefillTokens(0, 2*i, []int32{0, 0}, false); err != nil {
			return err
		}
		bytes[i] = r.slot.stateBytes(0)
	}
	per := (bytes[1] - bytes[0]) / 2
	if per < 0 || bytes[0] <= 0 {
		return fmt.Errorf("states of 2 and 4 tokens take %d and %d bytes", bytes[0], bytes[1])
	}
	r.size = stateSize{base: bytes[0] - 2*per, perCell: per}
	return nil
}

// Save implements engine.States.
func (r *runner) Save(seq int, dst []byte) (int, error) {
	if err := r.t.enter(); err != nil {
		return 0, err
	}
	defer r.t.leave()
	n := r.slot.stateBytes(seq)
	if n <= 0 || n > len(dst) {
		return 0, fmt.Errorf("llama: a state of %d bytes in %d", n, len(dst))
	}
	if got := r.slot.save(seq, dst[:n]); got != n {
		return 0, fmt.Errorf("llama: %d of %d bytes of a state were written", got, n)
	}
	return n, nil
}

// Restore implements engine.States.
func (r *runner) Restore(seq, pos, cells int, state []byte) error {
	if err := r.t.enter(); err != nil {
		return err
	}
	defer r.t.leave()
	r.slot.truncate(seq, 0)
	r.taken[seq] = 0
	if err := r.begin(seq, pos, cells); err != nil {
		return err
	}
	if len(state) == 0 {
		return fmt.Errorf("%w: it is empty", engine.ErrBadState)
	}
	mark := r.t.model.lib.log.mark()
	got := r.slot.restore(seq, state)
	if last := r.slot.last(seq); got != len(state) || last != pos-1 {
		r.slot.truncate(seq, 0)
		return fmt.Errorf("%w: %d of %d bytes were read, and it ends at position %d, not %d: %s",
			engine.ErrBadState, got, len(state), last+1, pos, r.t.model.lib.log.explain(mark))
	}
	r.taken[seq] = cells
	return nil
}

func (s *slot) stateBytes(seq int) int { return int(s.model.lib.c.stateSize(s.ctx, int32(seq))) }

// save writes the state of seq to dst, which has exactly the room for it, and returns how many bytes it wrote.
func (s *slot) save(seq int, dst []byte) int {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&dst[0])
	return int(s.model.lib.c.stateGet(s.ctx, &dst[0], uint64(len(dst)), int32(seq)))
}

// restore reads a state into seq, which is empty, and returns how many bytes it read; 0 if it is of no use.
func (s *slot) restore(seq int, state []byte) int {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&state[0])
	return int(s.model.lib.c.stateSet(s.ctx, &state[0], uint64(len(state)), int32(seq)))
}

// last returns the last position of seq, -1 if it is empty.
func (s *slot) last(seq int) int { return int(s.model.lib.c.memoryLast(s.memory, int32(seq))) }
