// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"runtime/debug"

	"afterimage/internal/engine"
)

// decode appends a token to every answer in work.
func (s *Scheduler) decode() bool {
	var jobs []*job
	var next []engine.Next
	for _, j := range s.seqs {
		if j == nil || !j.decoding() {
			continue
		}
		jobs = append(jobs, j)
		next = append(next, engine.Next{Seq: j.seq, Pos: j.pos, Token: j.answer[j.fed]})
	}
	if len(jobs) == 0 {
		return false
	}
	if err := s.run.Decode(next); err != nil && len(jobs) > 1 {
		s.apart(jobs, next)
		return true
	} else if err != nil {
		s.fault(jobs[0], err)
		return true
	}
	for i, j := range jobs {
		s.decoded(j, s.run.Logits(i))
	}
	return true
}

// apart decodes one by one after a call for all has failed, to find whom it fails for.
func (s *Scheduler) apart(jobs []*job, next []engine.Next) {
	for i, j := range jobs {
		if !s.run.Truncate(j.seq, j.pos, j.cells) {
			s.preempt(j)
			continue
		}
		if err := s.run.Decode(next[i : i+1]); err != nil {
			s.fault(j, err)
			continue
		}
		s.decoded(j, s.run.Logits(0))
	}
}

// decoded notes that the next token of an answer was computed.
func (s *Scheduler) decoded(j *job, logits []float32) {
	j.fed++
	j.pos++
	j.cells++
	if j.fed == len(j.answer) { // else the answer is being computed again
		s.pick(j, logits)
	}
}

// pick has the next token picked.
func (s *Scheduler) pick(j *job, logits []float32) {
	if logits == nil {
		s.fault(j, fmt.Errorf("batch: the engine gave no logits"))
		return
	}
	if j.handOff != nil {
		s.handOver(j, logits)
		return
	}
	if s.lim.Cells >= s.lim.Sequences*s.lim.Context {
		j.letGo()
	}
	tok, more, err := j.choose(logits)
	switch {
	case err != nil || !more:
		s.finish(j, err)
	case j.cells >= min(s.lim.Context, s.lim.Cells):
		s.finish(j, fmt.Errorf("%w: %d positions are taken", engine.ErrContextFull, j.cells))
	default:
		j.answer = append(j.answer, tok)
	}
}

// choose calls next. A panic in it is the fault of one request, and must not be that of all others.
func (j *job) choose(logits []float32) (tok int32, more bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("batch: picking a token panicked: %v\n%s", r, debug.Stack())
		}
	}()
	return j.next(logits)
}
