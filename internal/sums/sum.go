// SPDX-License-Identifier: Apache-2.0

package sums

import (
	"crypto/sha256"
	"hash"
	"slices"
	"sync"
)

// Sum is the sum of a text that comes in. Its owner calls Sum or Drop in the end; until one of them has returned, what
// has come of the text must not change.
type Sum struct {
	of    *Maker
	plain hash.Hash // where sums are not made side by side; nil where they are

	// What follows is guarded by the Maker, but for the state while the sum is busy.
	text  []byte // as far as it has come
	done  int    // bytes that the state holds
	state state
	since int       // what had come of all texts when it began, or was last computed
	busy  bool      // somebody computes
	turn  sync.Cond // the sum is not busy any more, or may have the place of another
}

// Begin begins a sum.
func (m *Maker) Begin() *Sum {
	s := &Sum{of: m}
	if !sideBySide {
		s.plain = sha256.New()
		return s
	}
	s.state, s.turn.L = initial, &m.mu
	m.mu.Lock()
	defer m.mu.Unlock()
	s.since, m.open = m.came, append(m.open, s)
	return s
}

// Grow says that more of the text has come. text is all of it, and lies where the former one does.
func (s *Sum) Grow(text []byte) {
	if s.plain != nil {
		s.plain.Write(text[len(s.text):])
		s.text = text
		return
	}
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	m.came += len(text) - len(s.text)
	s.text = text
	for m.due(s) {
		m.compute(s)
	}
	m.next()
}

// Sum returns the sum of what has come, which is the whole text.
func (s *Sum) Sum() (out [Size]byte) {
	if s.plain != nil {
		s.plain.Sum(out[:0])
		return out
	}
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	for queued := false; s.busy || s.left() >= blockBytes; {
		if !s.busy && m.free(s) {
			m.compute(s)
			continue
		}
		if !queued {
			m.waiting, queued = append(m.waiting, s), true
		}
		m.next()
		s.turn.Wait()
	}
	m.end(s)
	return s.state.sum(s.text[s.done:], uint64(len(s.text)))
}

// Drop gives the sum up. After Sum, or on nil, it does nothing.
func (s *Sum) Drop() {
	if s == nil || s.plain != nil {
		return
	}
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.open, s) {
		return
	}
	s.text = s.text[:s.done] // nobody begins to compute of it
	for s.busy {
		s.turn.Wait()
	}
	m.end(s)
}

// left returns how much has come and was not taken in.
func (s *Sum) left() int { return len(s.text) - s.done }

// took notes that n blocks were taken in.
func (s *Sum) took(n int) {
	s.done += n * blockBytes
	s.since, s.busy = s.of.came, false
	s.turn.Signal()
}
