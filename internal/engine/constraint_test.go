// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// slowly allows token 1 alone, and takes its time for each call.
type slowly struct {
	allows, mask, accept time.Duration
	accepted             int
}

func (s *slowly) Allows(tok int32) bool {
	time.Sleep(s.allows)
	return tok == 1
}

func (s *slowly) Mask(logits []float32) {
	time.Sleep(s.mask)
	logits[0] = -inf
}

func (s *slowly) Accept(int32) {
	time.Sleep(s.accept)
	s.accepted++
}

func (s *slowly) Close() {}

// An answer whose form takes long over a token ends there, and nothing more is asked of the form.
func TestFormThatTakesLong(t *testing.T) {
	f := func(vocab int, patience time.Duration, form slowly, late bool, accepted int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s, err := NewSampler(Sampling{Constraint: &form, Patience: patience})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			s.spent = func() time.Duration { return time.Since(began) }
			logits := make([]float32, vocab)
			logits[0] = 1 // is not allowed
			tok, err := s.Pick(logits)
			if errors.Is(err, ErrFormSlow) != late || err == nil && tok != 1 || form.accepted != accepted {
				t.Errorf("picked %d (%v), accepted %d", tok, err, form.accepted)
			}
		})
	}
	const s = time.Second
	f(2, 0, slowly{s / 2, s / 2, s, 0}, false, 1)
	f(2, 0, slowly{3 * s, 0, 0, 0}, true, 0)
	f(2, 0, slowly{0, 3 * s, 0, 0}, true, 0)
	f(2, 0, slowly{0, 0, 3 * s, 0}, true, 1)
	f(2, 0, slowly{s, s, s, 0}, true, 1)
	f(2, s, slowly{0, 0, 2 * s, 0}, true, 1)
	f(100_000, 0, slowly{s, 8 * s, s, 0}, false, 1)
	f(100_000, 0, slowly{s, 8 * s, 2 * s, 0}, true, 1)
}

// spinning takes a core for its patience, and then some.
type spinning struct{ patience time.Duration }

func (s spinning) Allows(int32) bool {
	for start := threadTime(); threadTime()-start <= s.patience; {
	}
	return true
}

func (spinning) Mask([]float32) {}
func (spinning) Accept(int32)   {}
func (spinning) Close()         {}

// Only time that a form keeps a core busy counts, not that of a process which is paused, or gets no core.
func TestFormIsNotBlamedForWaits(t *testing.T) {
	f := func(form Constraint, patience time.Duration, late bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s, err := NewSampler(Sampling{Constraint: form, Patience: patience})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Pick([]float32{1, 0}); errors.Is(err, ErrFormSlow) != late {
				t.Errorf("late: %v, want %v", err, late)
			}
		})
	}
	f(&slowly{time.Hour, time.Hour, time.Hour, 0}, 0, false)
	f(spinning{time.Millisecond}, time.Millisecond, true)
}
