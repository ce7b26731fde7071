// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"errors"
	"slices"

	"afterimage/internal/engine"
)

// work does one step and says whether there was anything to do.
func (s *Scheduler) work() bool {
	s.step++
	m := place(space{sequences: s.lim.Sequences, cells: s.lim.Cells}, s.views())
	for _, id := range m.preempt {
		s.preempt(s.job(id))
	}
	for _, id := range m.admit {
		s.admit(s.job(id))
	}
	s.evict()
	s.count()
	decoded := s.decode()
	worked := len(m.admit) > 0 || decoded
	for _, a := range share(s.cfg.StepTokens, s.views()) {
		s.prefill(s.job(a.id), a.n)
		worked = true
	}
	return worked
}

func (s *Scheduler) job(id int) *job {
	return s.jobs[slices.IndexFunc(s.jobs, func(j *job) bool { return j.id == id })]
}

func (s *Scheduler) views() []view {
	out := make([]view, len(s.jobs))
	for i, j := range s.jobs {
		out[i] = j.view()
	}
	return out
}

// worthIt is how many cells must be saved before a sequence is chosen for what it holds, rather than the
// one that was not used for longest. Chat templates begin all prompts alike.
const worthIt = 16

// start is what a sequence offers to a job: units that it need not compute.
type start struct{ seq, units, cells, pos int }

// startIn returns what sequence i offers to j: nothing if it is of another scope. Of one in use, what is computed
// so far counts.
func (s *Scheduler) startIn(i int, j *job) start {
	units, scope := s.records[i].units, s.records[i].scope
	if k := s.seqs[i]; k != nil {
		units, scope = k.prompt.units[:k.done], k.scope
	}
	if scope != j.scope {
		return start{seq: i}
	}
	m := j.prompt.common(units, s.lim.Batch)
	cells, pos := measure(units[:m])
	return start{i, m, cells, pos}
}

// best returns the sequence that offers most to j, a free one among equals; false when none is worth it.
func (s *Scheduler) best(j *job) (start, bool) {
	best := start{seq: -1, cells: worthIt - 1}
	for i := range s.records {
		at := s.startIn(i, j)
		if at.cells > best.cells || best.seq >= 0 && at.cells == best.cells && s.seqs[best.seq] != nil && s.seqs[i] == nil {
			best = at
		}
	}
	return best, best.seq >= 0
}

// admit puts j into a sequence, which there is.
func (s *Scheduler) admit(j *job) {
	at, ok := s.best(j) // none, for a state
	seq := at.seq
	switch {
	case !ok:
		seq = s.oldest()
		at = s.startIn(seq, j)
	case s.seqs[seq] != nil:
		seq = s.oldest()
		s.run.Copy(seq, at.seq)
	}
	if !s.run.Truncate(seq, at.pos, at.cells) {
		at = start{}
	}
	j.seq, j.done, j.cells, j.pos = seq, at.units, at.cells, at.pos
	j.look()
	s.shed(j)
	s.seqs[seq], s.records[seq] = j, record{}
	if len(j.answer) == 0 {
		j.h.cached = at.cells
	}
	s.mu.Lock()
	s.stats.Admitted++
	s.stats.CachedCells += int64(at.cells)
	s.mu.Unlock()
	if j.state != nil {
		s.restore(j)
	}
}

// oldest returns the free sequence that was not used for longest.
func (s *Scheduler) oldest() int {
	best := -1
	for i, j := range s.seqs {
		if j == nil && (best < 0 || s.records[i].used < s.records[best].used) {
			best = i
		}
	}
	return best
}

// evict empties free sequences while what they hold is in the way.
func (s *Scheduler) evict() {
	for {
		total, victim := 0, -1
		for i := range s.records {
			if j := s.seqs[i]; j != nil {
				total += j.view().reserve()
				continue
			}
			total += s.records[i].cells
			if s.records[i].cells > 0 && (victim < 0 || s.records[i].used < s.records[victim].used) {
				victim = i
			}
		}
		if total <= s.lim.Cells || victim < 0 {
			return
		}
		s.run.Truncate(victim, 0, 0)
		s.records[victim] = record{}
	}
}

// prefill computes pieces of a prompt within allow entries.
func (s *Scheduler) prefill(j *job, allow int) {
	j.served = s.step
	for first := true; allow > 0 && !j.over; first = false {
		p := j.nextPiece(allow)
		if p.n == 0 || !first && p.n > allow {
			break
		}
		last, err := s.compute(j, p)
		if err != nil {
			s.fault(j, err)
			return
		}
		allow -= p.n
		j.advance(p)
		s.shed(j)
		if last && len(j.answer) == 0 {
			s.pick(j, s.run.Logits(0))
			return
		}
	}
	j.look()
}

// compute runs one piece and says whether it was the last of the prompt.
func (s *Scheduler) compute(j *job, p piece) (last bool, err error) {
	if r := p.rows; r != nil {
		width := len(r.data) / r.part.Rows
		err := s.run.PrefillRows(j.seq, j.pos, r.part, j.part, p.n, r.data[j.part*width:(j.part+p.n)*width])
		if errors.Is(err, engine.ErrBadRows) {
			err = &ItemError{slices.Index(j.prompt.names, r.name), err}
		}
		return false, err
	}
	toks := make([]int32, p.n)
	for i := range toks {
		toks[i] = j.prompt.units[j.done+i].tok
	}
	last = j.prompt.whole() && j.done+p.n == len(j.prompt.units)
	return last, s.run.PrefillTokens(j.seq, j.pos, toks, last)
}

// shed lets go of the embeddings of j that are not read any more. A request that still waits for one, or whose
// memory can run out, may have to compute its prompt again.
func (s *Scheduler) shed(j *job) {
	if !j.prompt.whole() || s.lim.Cells < s.lim.Sequences*s.lim.Context {
		return
	}
	for i, it := range j.prompt.items {
		if it != nil && it.end <= j.done {
			j.letGoOf(i)
		}
	}
}

// fault ends a request whose call failed, and empties its sequence.
func (s *Scheduler) fault(j *job, err error) {
	j.done, j.part = 0, 0
	s.finish(j, err)
}
