// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// ErrFormSlow: what holds an answer to its form takes too long over a token.
var ErrFormSlow = errors.New("engine: holding the answer to its form takes too long")

// Constraint says which tokens may come next in an answer of a given form. It is used by one goroutine.
type Constraint interface {
	// Allows says whether tok may come next.
	Allows(tok int32) bool
	// Mask sets the logits of tokens that may not come next to negative infinity.
	Mask(logits []float32)
	// Accept notes that tok, which is allowed, comes next. A token that ends the answer is not noted.
	Accept(tok int32)
	Close()
}

// A grammar that is allowed 128 readings is masked in 0.9 s over 49,000 entries, 18 us each. One whose readings multiply
// takes some four times as long with every token, so it is found out before a call takes minutes.
const (
	leastPatience    = 2 * time.Second
	patiencePerEntry = 100 * time.Microsecond
)

// hold returns tok if it may come next, else another that may. All other answers wait meanwhile, so an answer whose form
// takes too long ends, before it takes longer. What counts is time of the processor: a process that is paused or gets no
// core is not the form's doing.
func (s *Sampler) hold(logits []float32, tok int32) (int32, error) {
	runtime.LockOSThread() // which the time is of
	defer runtime.UnlockOSThread()
	c, start := s.cfg.Constraint, s.spent()
	patience := cmp.Or(s.cfg.Patience, max(leastPatience, time.Duration(len(logits))*patiencePerEntry))
	late := func() error {
		if d := s.spent() - start; d > patience {
			return fmt.Errorf("%w: %v for one token, and at most %v are allowed", ErrFormSlow, d.Round(time.Millisecond), patience)
		}
		return nil
	}
	allowed := c.Allows(tok)
	if err := late(); err != nil {
		return 0, err
	}
	if !allowed {
		if len(s.work) == 0 {
			s.work = append(s.work, logits...)
		}
		c.Mask(s.work)
		if err := late(); err != nil {
			return 0, err
		}
		var err error
		if tok, err = s.choose(s.work); err != nil {
			return 0, err
		}
	}
	c.Accept(tok)
	return tok, late()
}

// threadTime is how long the calling thread has had a core.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // cannot fail with this clock
	return time.Duration(t.Nano())
}
