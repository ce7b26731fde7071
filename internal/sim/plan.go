// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"time"
)

// Goal is what a fleet has to hold.
type Goal struct {
	Quantile int           // 50, 90 or 99
	TTFT     time.Duration // most that this quantile of the time to first token may be
}

// Sized is the smallest fleet that Plan found.
type Sized struct {
	Encoders   int     `json:"encoders"`
	Prefills   int     `json:"prefills"`
	StoreBytes int64   `json:"store_bytes"`
	Outcome    Outcome `json:"outcome"`
}

// maxWorkers bounds the workers of one kind that Plan looks at.
const maxWorkers = 512

// storeSlack is how many more images may be encoded with the Store that Plan chooses than with one that
// never evicts.
const storeSlack = 1.02

// planner searches with one trace, goal and policy.
type planner struct {
	ctx  context.Context
	t    *Trace
	m    Model
	p    Policy
	goal Goal
	err  error // the first
}

// Plan returns the smallest fleet that meets a goal: the fewest workers, Encoders and P/Ds together, of
// equal sums that with the fewest P/Ds, and then, if the policy has a Store, the smallest one that neither
// misses the goal nor encodes much more.
func Plan(ctx context.Context, t *Trace, m Model, p Policy, goal Goal) (Sized, error) {
	if goal.Quantile != 50 && goal.Quantile != 90 && goal.Quantile != 99 || goal.TTFT <= 0 {
		return Sized{}, fmt.Errorf("sim: a goal of %v at p%d; give a time above 0 at p50, p90 or p99", goal.TTFT, goal.Quantile)
	}
	s := &planner{ctx: ctx, t: t, m: m, p: p, goal: goal}
	if s.p.StoreBytes != 0 {
		s.p.StoreBytes = Unlimited
	}
	if !s.fewest() {
		return Sized{}, s.impossible()
	}
	best, _ := s.met()
	if s.p.StoreBytes != 0 && s.err == nil {
		best = s.store(best)
	}
	return Sized{Encoders: s.m.Encoders, Prefills: s.m.Prefills, StoreBytes: s.p.StoreBytes, Outcome: best}, s.err
}

// fewest sets the workers to the fewest that meet the goal, and says whether any do. With the fewest P/Ds of
// all, the Encoders may have to be many to make up for them, so more P/Ds are tried as long as they can pay.
func (s *planner) fewest() bool {
	s.m.Prefills = maxWorkers
	if !s.smallest(&s.m.Encoders, maxWorkers) {
		return false
	}
	least := s.m.Encoders // behind any number of P/Ds
	s.m.Encoders = maxWorkers
	if !s.smallest(&s.m.Prefills, maxWorkers) || !s.smallest(&s.m.Encoders, maxWorkers) {
		return false
	}
	encoders, prefills := s.m.Encoders, s.m.Prefills
	for p := prefills + 1; p+least < encoders+prefills; p++ {
		s.m.Prefills = p
		if s.smallest(&s.m.Encoders, encoders+prefills-p-1) {
			encoders, prefills = s.m.Encoders, p
		}
	}
	s.m.Encoders, s.m.Prefills = encoders, prefills
	return s.err == nil
}

// smallest sets n to the least value from 1 to most that meets the goal, and says whether one does.
func (s *planner) smallest(n *int, most int) bool {
	*n = most
	if _, ok := s.met(); !ok {
		return false
	}
	low, high := 1, most // high meets it
	for low < high && s.err == nil {
		*n = (low + high) / 2
		if _, ok := s.met(); ok {
			high = *n
		} else {
			low = *n + 1
		}
	}
	*n = high
	return s.err == nil
}

// store shrinks the Store of a fleet that meets the goal with an endless one.
func (s *planner) store(best Outcome) Outcome {
	most := float64(best.Encoded) * storeSlack
	low, high := int64(0), max(best.StorePeakBytes, 1)
	grain := max(high/64, 1)
	for high-low > grain && s.err == nil {
		s.p.StoreBytes = (low + high) / 2
		o, ok := s.met()
		if ok && float64(o.Encoded) <= most {
			best, high = o, s.p.StoreBytes
		} else {
			low = s.p.StoreBytes
		}
	}
	s.p.StoreBytes = high
	return best
}

// met runs the trace and says whether the goal holds and no queue grows without end.
func (s *planner) met() (Outcome, bool) {
	o, err := Run(s.ctx, s.t, s.m, s.p)
	if err != nil {
		s.err = err
		return o, false
	}
	return o, o.at(s.goal.Quantile) <= s.goal.TTFT.Seconds() && o.EncoderUse < 1 && o.PrefillUse < 1
}

// at returns a quantile of the time to first token.
func (o *Outcome) at(quantile int) float64 {
	switch quantile {
	case 50:
		return o.P50
	case 99:
		return o.P99
	}
	return o.P90
}

func (s *planner) impossible() error {
	if s.err != nil {
		return s.err
	}
	s.m.Encoders, s.m.Prefills = maxWorkers, maxWorkers
	o, _ := s.met()
	return fmt.Errorf("sim: no fleet meets %v at p%d: with %d Encoders and %d P/Ds it is %.3f s", s.goal.TTFT, s.goal.Quantile,
		maxWorkers, maxWorkers, o.at(s.goal.Quantile))
}

// Change is a way in which the future may differ from a trace.
type Change struct {
	Name  string
	apply func(*Trace, *Model) *Trace
}

// Changes are what a plan's sensitivity is looked at for.
func Changes() []Change {
	faster := func(by float64) func(*Trace, *Model) *Trace {
		return func(t *Trace, _ *Model) *Trace { return t.Faster(by) }
	}
	return []Change{
		{"as given", func(t *Trace, _ *Model) *Trace { return t }},
		{"20 % fewer requests", faster(0.8)},
		{"25 % more requests", faster(1.25)},
		{"twice the requests", faster(2)},
		{"encoding takes 1.5x", func(t *Trace, m *Model) *Trace { m.Encode = m.Encode * 3 / 2; return t }},
		{"prefill takes 1.5x", func(t *Trace, m *Model) *Trace { m.Prefill = m.Prefill * 3 / 2; return t }},
		{"no image comes twice", func(t *Trace, _ *Model) *Trace { return t.distinct() }},
	}
}

// Apply returns the trace and the model with the change made.
func (c Change) Apply(t *Trace, m Model) (*Trace, Model) { return c.apply(t, &m), m }

// distinct returns the trace with every use an image of its own.
func (t *Trace) distinct() *Trace {
	d := *t
	d.uses = make([]Use, len(t.uses))
	for i, u := range t.uses {
		d.uses[i] = Use{Image: uint32(i), Bytes: u.Bytes}
	}
	d.Images = len(d.uses)
	return &d
}
