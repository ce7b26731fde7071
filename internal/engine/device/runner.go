// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// runner holds a running hash of all that each sequence was fed.
type runner struct {
	t      *Text
	end    int64 // of the last piece of work, on the device's clock
	seqs   []sequence
	logits [][]float32 // by entry of the last call
}

// sequence is a conversation. A row takes one position.
type sequence struct {
	states []uint64 // hash after each position, from the empty one on
	owed   int      // positions taken that the device has spent no time on; see TextConfig.Whole
	answer int      // tokens decoded since the prompt
}

func newRunner(t *Text) *runner {
	r := &runner{t: t, seqs: make([]sequence, t.cfg.Slots)}
	for i := range r.seqs {
		r.seqs[i].states = []uint64{0}
		r.logits = append(r.logits, make([]float32, vocab))
	}
	return r
}

// Limits implements engine.Runner.
func (r *runner) Limits() engine.Limits {
	c := r.t.cfg
	cells := c.Cells
	if cells == 0 {
		cells = c.Slots * c.Context
	}
	return engine.Limits{Sequences: c.Slots, Context: c.Context, Cells: cells, Batch: batch}
}

// batch is the most that the device takes at once.
const batch = 512

// take checks that seq has pos positions and room for n more.
func (r *runner) take(seq, pos, n int) (*sequence, error) {
	s := &r.seqs[seq]
	switch {
	case pos != len(s.states)-1:
		return nil, fmt.Errorf("device: sequence %d has %d positions, not %d", seq, len(s.states)-1, pos)
	case pos+n > r.t.cfg.Context:
		return nil, fmt.Errorf("%w: %d + %d of %d", engine.ErrContextFull, pos, n, r.t.cfg.Context)
	}
	return s, nil
}

// prefill spends the device time of n positions, or, of a prompt that is computed as a whole, that of all
// of it at its end.
func (r *runner) prefill(s *sequence, n int, last bool) (err error) {
	s.owed += n
	if r.t.cfg.Whole && !last {
		return nil
	}
	r.end, err = r.t.clock.Give(time.Duration(s.owed) * r.t.cfg.PrefillTime)
	if err != nil {
		return err
	}
	s.owed = 0
	return r.t.clock.Await(context.Background(), r.end)
}

// mix appends a position.
func (s *sequence) mix(v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	s.states = append(s.states, xxh3.HashSeed(b[:], s.states[len(s.states)-1]))
}

// PrefillTokens implements engine.Runner.
func (r *runner) PrefillTokens(seq, pos int, toks []int32, logits bool) error {
	for _, t := range toks {
		if t < 0 || t >= vocab {
			return fmt.Errorf("device: token %d is outside the vocabulary of %d", t, vocab)
		}
	}
	s, err := r.take(seq, pos, len(toks))
	if err != nil {
		return err
	}
	if err := r.prefill(s, len(toks), logits); err != nil {
		return err
	}
	for _, t := range toks {
		s.mix(uint64(t))
	}
	s.answer = 0
	if logits {
		r.vote(0, s)
	}
	return nil
}

// PrefillRows implements engine.Runner.
func (r *runner) PrefillRows(seq, pos int, p embedding.Part, first, n int, rows []byte) error {
	width := r.t.cfg.Cols * r.t.cfg.DType.Bytes()
	if n < 1 || first+n > p.Rows || len(rows) != n*width {
		return fmt.Errorf("%w: %d bytes for %d rows of %d x %v", engine.ErrBadRows, len(rows), n, r.t.cfg.Cols, r.t.cfg.DType)
	}
	if err := embedding.CheckFinite(rows, r.t.cfg.DType); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrBadRows, err)
	}
	s, err := r.take(seq, pos+first, n)
	if err != nil {
		return err
	}
	if err := r.prefill(s, n, false); err != nil {
		return err
	}
	for row := range slices.Chunk(rows, width) {
		s.mix(xxh3.Hash(row))
	}
	s.answer = 0
	return nil
}

// Decode implements engine.Runner. The device takes one step for all sequences together.
func (r *runner) Decode(next []engine.Next) error {
	for _, n := range next {
		if n.Token < 0 || n.Token >= vocab {
			return fmt.Errorf("device: token %d is outside the vocabulary of %d", n.Token, vocab)
		}
		if _, err := r.take(n.Seq, n.Pos, 1); err != nil {
			return err
		}
	}
	var err error
	if r.end, err = r.t.clock.Step(r.end, r.t.cfg.DecodeTime); err != nil {
		return err
	}
	if err := r.t.clock.Await(context.Background(), r.end); err != nil {
		return err
	}
	for i, n := range next {
		s := &r.seqs[n.Seq]
		s.mix(uint64(n.Token))
		s.answer++
		r.vote(i, s)
	}
	return nil
}

// vote makes a lower-case letter or a space the clear winner, and the end once the answer is long
// enough.
func (r *runner) vote(i int, s *sequence) {
	l, state := r.logits[i], s.states[len(s.states)-1]
	clear(l)
	next := int32('a' + state%26)
	if state>>32%6 == 0 {
		next = ' '
	}
	if r.t.cfg.AnswerLen > 0 && s.answer >= r.t.cfg.AnswerLen {
		next = endToken
	}
	l[next] = 20
}

// Logits implements engine.Runner.
func (r *runner) Logits(i int) []float32 { return r.logits[i] }

// Truncate implements engine.Runner.
func (r *runner) Truncate(seq, pos, _ int) bool {
	s := &r.seqs[seq]
	s.states, s.owed = s.states[:min(pos+1, len(s.states))], 0
	return true
}

// Copy implements engine.Runner.
func (r *runner) Copy(dst, src int) {
	r.seqs[dst].states = append(r.seqs[dst].states[:0], r.seqs[src].states...)
}
