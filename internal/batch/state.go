// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"runtime/debug"

	"afterimage/internal/engine"
)

// Computed is a prompt that is computed, on its way to another Runner.
type Computed struct {
	Cells, Positions int
	Logits           []float32 // after the prompt; not to be kept
	// Save writes the state of the sequence to dst and returns how many bytes that took.
	Save func(dst []byte) (int, error)
}

// State is what a request goes on from that does not compute its prompt itself.
type State struct {
	Cells, Positions int
	Logits           []float32
	Data             []byte // as Save wrote it
}

// handOver ends a request with the call that takes its prompt away.
func (s *Scheduler) handOver(j *job, logits []float32) {
	s.finish(j, j.giveAway(Computed{
		Cells: j.cells, Positions: j.pos, Logits: logits,
		Save: func(dst []byte) (int, error) { return s.states.Save(j.seq, dst) },
	}))
}

// giveAway calls handOff. A panic in it is the fault of one request.
func (j *job) giveAway(c Computed) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("batch: handing a prompt over panicked: %v\n%s", r, debug.Stack())
		}
	}()
	return j.handOff(c)
}

// restore fills the sequence that j was given with its state, and goes on from there.
func (s *Scheduler) restore(j *job) {
	st := j.state
	if err := s.states.Restore(j.seq, st.Positions, st.Cells, st.Data); err != nil {
		s.fault(j, err)
		return
	}
	j.cells, j.pos = st.Cells, st.Positions
	if len(j.answer) == 0 { // else its answer is computed again
		s.pick(j, st.Logits)
	}
}

// checkState refuses a request that needs what the Runner does not offer, or that has both a prompt and a state.
func (s *Scheduler) checkState(r *Request) error {
	switch {
	case r.State == nil && r.HandOff == nil:
		return nil
	case s.states == nil:
		return fmt.Errorf("batch: %w: this engine has none", engine.ErrBadState)
	case r.State != nil && (len(r.Prompt) > 0 || r.HandOff != nil || r.State.Cells < 1 || r.State.Cells != r.Cells):
		return fmt.Errorf("batch: %w: of %d cells, for a request of %d with %d segments", engine.ErrBadState, r.State.Cells, r.Cells, len(r.Prompt))
	}
	return nil
}
