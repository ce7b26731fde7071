// SPDX-License-Identifier: Apache-2.0

// Package sums makes SHA-256 sums of texts of megabytes while they come in, two side by side where the processor has
// instructions for that: a sum waits for its own steps half of the time, so that another costs next to nothing.
//
// A text that comes alone is computed as it comes. When several come at once, what has come of each is left where it
// lies until somebody computes, who takes the longest other one along. As many goroutines compute as half of the
// processors, since each does the work of two.
//
// A Pairs may be used from any goroutine, a Sum by one at a time.
package sums

import (
	"runtime"
	"slices"
	"sync"
)

const (
	// stretch is the most that is computed before anybody looks for another text to take along.
	stretch = 256 << 10
	// worth is the least that is computed while more of the text may come, or taken along.
	worth = 16 << 10
)

// Pairs makes sums.
type Pairs struct {
	most int // goroutines that compute

	mu        sync.Mutex // guards what follows, and the sums
	computing int
	open      []*Sum
	waiting   []*Sum // for a place among those that compute, the longest first
}

// New returns a Pairs that keeps the processors busy.
func New() *Pairs { return &Pairs{most: max(1, runtime.GOMAXPROCS(0)/2)} }

// Of returns the sum of a whole text.
func (p *Pairs) Of(text []byte) [Size]byte {
	s := p.Begin()
	s.Grow(text)
	return s.Sum()
}

// Open returns how many sums have begun and were neither made nor given up, for tests.
func (p *Pairs) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// companion returns the sum that has most to be taken along, nil if none but s has anything worth it.
func (p *Pairs) companion(s *Sum) (best *Sum) {
	most := worth - 1
	for _, o := range p.open {
		if n := o.left(); o != s && !o.busy && n > most {
			best, most = o, n
		}
	}
	return best
}

// compute takes in a stretch of s, which has a block at least and is not busy, and of another sum if there is one.
// p is locked, but not meanwhile.
func (p *Pairs) compute(s *Sum) {
	other := p.companion(s)
	n := min(s.left(), stretch) / blockBytes
	mine, theirs := s.text[s.done:], []byte(nil)
	s.busy = true
	if other != nil {
		n, theirs = min(n, other.left()/blockBytes), other.text[other.done:]
		other.busy = true
	}
	p.computing++
	p.mu.Unlock()
	if other == nil {
		s.state.take(mine[:n*blockBytes])
	} else {
		blocks(&s.state, &other.state, &mine[0], &theirs[0], n)
	}
	p.mu.Lock()
	p.computing--
	s.took(n)
	if other != nil {
		other.took(n)
	}
}

// end forgets s.
func (p *Pairs) end(s *Sum) {
	is := func(o *Sum) bool { return o == s }
	p.open, p.waiting = slices.DeleteFunc(p.open, is), slices.DeleteFunc(p.waiting, is)
	p.next()
}

// next has the next sum that waits for a place among those that compute look for it. Whoever has computed and computes
// no more calls it.
func (p *Pairs) next() {
	for _, o := range p.waiting {
		if !o.busy && p.computing < p.most {
			o.turn.Signal()
			return
		}
	}
}
