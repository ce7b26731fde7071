// SPDX-License-Identifier: Apache-2.0

// Package sums makes SHA-256 sums of texts of megabytes while they come in, several side by side where the processor has
// instructions for that: a sum waits for its own steps half of the time, so that another costs next to nothing, and of
// four the processor always finds one that can go on. Two are made 1.65 times as fast as one after the other, four 1.9
// times ("go test -bench . ./internal/sums").
//
// A text that comes while there are fewer than processors is computed as it comes, and those of which nothing comes do
// not count. When there are more, what has come of each is left where it lies until somebody computes, who takes those
// along of which most has come. Whoever waits for a sum goes before texts of which more may come: there are always more
// of those, and what is left of a text in the end is often too little to be taken along.
//
// A Maker may be used from any goroutine, a Sum by one at a time.
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

// Maker makes sums.
type Maker struct {
	processors int
	most       int // goroutines that compute

	mu        sync.Mutex // guards what follows, and the sums
	computing int
	came      int // bytes, of all texts there ever were
	open      []*Sum
	waiting   []*Sum // for a place among those that compute, the longest first
}

// New returns a Maker that keeps the processors busy. Half of them compute, since each does the work of several; but
// never is there only one goroutine that does, for which all would wait while the system lets others run.
func New() *Maker {
	n := runtime.GOMAXPROCS(0)
	return &Maker{processors: n, most: max(2, n/2)}
}

// Of returns the sum of a whole text.
func (m *Maker) Of(text []byte) [Size]byte {
	s := m.Begin()
	s.Grow(text)
	return s.Sum()
}

// Open returns how many sums have begun and were neither made nor given up, for tests.
func (m *Maker) Open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

// due says whether s is computed while more of it may come: if as many texts are as there should be at once, so that no
// processor does less than it could while others wait.
func (m *Maker) due(s *Sum) bool {
	if s.busy || s.left() < worth || !m.free(s) {
		return false
	}
	_, together := m.team(s)
	switch come := m.come(); {
	case come >= 4 && come >= 2*m.processors:
		return together == 4
	case come >= 2 && come >= m.processors:
		return together >= 2
	}
	return true
}

// come returns how many texts can be reckoned with: not those of which less is left than is worth it while two stretches
// come of each text, since their senders are slow or they are whole. Nobody waits long for company that does not come.
func (m *Maker) come() (n int) {
	for _, o := range m.open {
		if o.left() >= worth || m.came-o.since <= 2*stretch*len(m.open) {
			n++
		}
	}
	return n
}

// team returns the sums that are computed side by side with s, itself in front, and their number: 1, 2 or 4. They are
// those of which most is left, if that is worth it.
func (m *Maker) team(s *Sum) (sums [maxLanes]*Sum, n int) {
	sums[0], n = s, 1
	for _, o := range m.open {
		if o == s || o.busy || o.left() < worth {
			continue
		}
		i := n // its place: behind those of which more is left
		for i > 1 && sums[i-1].left() < o.left() {
			i--
		}
		if i < maxLanes {
			copy(sums[i+1:], sums[i:])
			sums[i] = o
			n = min(n+1, maxLanes)
		}
	}
	if n == 3 {
		n = 2 // three take as long as four
	}
	return sums, n
}

// compute takes in a stretch of s, which has a block at least and is not busy, and of other sums if there are any.
// m is locked, but not meanwhile.
func (m *Maker) compute(s *Sum) {
	sums, together := m.team(s)
	team := sums[:together]
	n := stretch
	var l lanes
	for i, o := range team {
		n = min(n, o.left())
		l.states[i], l.texts[i] = &o.state, &o.text[o.done]
		o.busy = true
	}
	n /= blockBytes
	m.computing++
	m.next() // when two have ended before the first that waits goes on, both have woken it
	m.mu.Unlock()
	l.take(together, n)
	m.mu.Lock()
	m.computing--
	for _, o := range team {
		o.took(n)
	}
}

// end forgets s.
func (m *Maker) end(s *Sum) {
	is := func(o *Sum) bool { return o == s }
	m.open, m.waiting = slices.DeleteFunc(m.open, is), slices.DeleteFunc(m.waiting, is)
	m.next()
}

// free says whether s may have a place among those that compute: if one is left when those that wait before it have
// theirs.
func (m *Maker) free(s *Sum) bool {
	places := m.most - m.computing
	for _, o := range m.waiting {
		if o == s || places <= 0 {
			break
		}
		if !o.busy {
			places--
		}
	}
	return places > 0
}

// next has the next sum that waits for a place among those that compute look for it. Whoever leaves a place, or does not
// take one that it was to look for, calls it.
func (m *Maker) next() {
	for _, o := range m.waiting {
		if !o.busy && m.computing < m.most {
			o.turn.Signal()
			return
		}
	}
}
