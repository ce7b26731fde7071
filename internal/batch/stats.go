// SPDX-License-Identifier: Apache-2.0

package batch

import "time"

// Stats are the numbers of a Scheduler.
type Stats struct {
	Sequences, Cells int // limits
	Running          int // requests that hold a sequence
	Waiting          int // requests without one
	UsedCells        int // by requests
	KeptCells        int // by what sequences without a request hold

	Admitted    int64 // requests put into a sequence, again after a preemption included
	CachedCells int64 // prompt cells that they did not have to compute
	Preemptions int64

	// Since is when the step in work began; zero between steps. A step that does not end is a native
	// call that hangs.
	Since time.Time
}

// Stats returns the numbers as they are.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// mark notes that a step begins, or with the zero time that it has ended.
func (s *Scheduler) mark(t time.Time) {
	s.mu.Lock()
	s.stats.Since = t
	s.mu.Unlock()
}

// count brings the gauges up to date.
func (s *Scheduler) count() {
	running, used, kept := 0, 0, 0
	for i, j := range s.seqs {
		if j == nil {
			kept += s.records[i].cells
			continue
		}
		running++
		used += j.cells
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Running, s.stats.UsedCells, s.stats.KeptCells = running, used, kept
	s.stats.Waiting = s.arriving + len(s.jobs) - running
}
