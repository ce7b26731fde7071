// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/engine"
)

// Config says how requests share the model.
type Config struct {
	// StepTokens is the most tokens and rows of prompts that one step computes; 0 means 128. Between two
	// steps every answer in work gets its next token, so it bounds how long they wait.
	StepTokens int
	// MaxWaiting bounds the requests without a sequence; 0 means no bound. One more gets ErrFull.
	MaxWaiting int
}

const defaultStepTokens = 128

// Scheduler shares a Runner between requests. It is the only user of the Runner until Close.
type Scheduler struct {
	run engine.Runner
	// states is run where it offers that, else nil.
	states engine.States
	lim    engine.Limits
	cfg    Config

	mu       sync.Mutex // guards what follows
	inbox    []func()   // what callers want done on the goroutine
	closed   bool
	stats    Stats
	arriving int           // requests in inbox
	wake     chan struct{} // holds one when inbox is not empty
	wg       sync.WaitGroup
	unique   atomic.Int64 // names given by Ask

	// Only the goroutine touches what follows.
	jobs    []*job   // in order of arrival
	seqs    []*job   // by sequence; nil where none holds it
	records []record // by sequence
	ids     int
	step    int
}

// New starts the goroutine that owns run.
func New(run engine.Runner, cfg Config) *Scheduler {
	if cfg.StepTokens == 0 {
		cfg.StepTokens = defaultStepTokens
	}
	lim := run.Limits()
	s := &Scheduler{
		run: run, lim: lim, cfg: cfg, wake: make(chan struct{}, 1),
		seqs: make([]*job, lim.Sequences), records: make([]record, lim.Sequences),
	}
	s.states, _ = run.(engine.States)
	s.stats.Sequences, s.stats.Cells = lim.Sequences, lim.Cells
	s.wg.Go(s.loop)
	return s
}

// Close ends all requests with ErrClosed and waits for the call in work.
func (s *Scheduler) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.poke()
	s.wg.Wait()
}

// Submit queues a request. It refuses one that can never be served.
func (s *Scheduler) Submit(r Request) (*Handle, error) {
	n := len(r.Prompt)
	if err := s.checkState(&r); err != nil {
		return nil, err
	}
	switch {
	case r.State == nil && (n == 0 || r.Prompt[n-1].Item >= 0 || len(r.Prompt[n-1].Tokens) == 0):
		return nil, errors.New("batch: a prompt must end with text")
	case r.Cells >= min(s.lim.Context, s.lim.Cells):
		return nil, fmt.Errorf("%w: a prompt of %d in %d", engine.ErrContextFull, r.Cells, min(s.lim.Context, s.lim.Cells))
	}
	j := &job{seq: -1, scope: r.Scope, next: r.Next, freed: r.Freed, handOff: r.HandOff, state: r.State, adopted: r.State != nil, max: r.Cells, block: s.lim.Batch}
	j.prompt = prompt{segments: r.Prompt, names: r.Names, items: make([]*item, len(r.Names))}
	h := &Handle{s: s, j: j, done: make(chan struct{}), free: make(chan struct{})}
	j.h = h
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrClosed
	case s.cfg.MaxWaiting > 0 && s.stats.Waiting >= s.cfg.MaxWaiting:
		return nil, ErrFull
	}
	s.stats.Waiting++
	s.arriving++
	s.inbox = append(s.inbox, func() { s.add(j) })
	s.poke()
	return h, nil
}

// add takes a request into the order of arrival.
func (s *Scheduler) add(j *job) {
	s.mu.Lock()
	s.arriving--
	s.mu.Unlock()
	s.ids++
	j.id = s.ids
	s.jobs = append(s.jobs, j)
	j.grow()
}

// post has f called on the goroutine.
func (s *Scheduler) post(f func()) {
	s.mu.Lock()
	s.inbox = append(s.inbox, f)
	s.mu.Unlock()
	s.poke()
}

func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// loop works until Close.
func (s *Scheduler) loop() {
	for {
		s.mu.Lock()
		todo, closed := s.inbox, s.closed
		s.inbox = nil
		s.mu.Unlock()
		for _, f := range todo {
			f()
		}
		if closed {
			for len(s.jobs) > 0 {
				s.finish(s.jobs[0], ErrClosed)
			}
			return
		}
		s.mark(time.Now())
		worked := s.work()
		s.mark(time.Time{})
		if !worked {
			<-s.wake
		}
	}
}

// finish ends a request. What its sequence holds stays for others.
func (s *Scheduler) finish(j *job, err error) {
	if j.over {
		return
	}
	j.over = true
	s.release(j)
	j.letGo()
	if i := slices.Index(s.jobs, j); i >= 0 {
		s.jobs = slices.Delete(s.jobs, i, i+1)
	}
	s.count()
	j.h.err = err
	close(j.h.done)
}

// release takes a job out of its sequence, which keeps what was computed of the prompt.
func (s *Scheduler) release(j *job) {
	if j.seq < 0 {
		return
	}
	units := slices.Clip(j.prompt.units[:j.done])
	cells, pos := measure(units)
	rec := record{scope: j.scope, units: units, cells: cells, used: s.step}
	if !s.run.Truncate(j.seq, pos, cells) {
		rec = record{}
	}
	s.records[j.seq], s.seqs[j.seq] = rec, nil
	j.seq = -1
}

// preempt takes a job out of its sequence; it will compute its prompt again.
func (s *Scheduler) preempt(j *job) {
	if j.adopted && j.state == nil { // which happens where a memory could not be cut back only
		s.fault(j, fmt.Errorf("batch: %w: its sequence was lost", engine.ErrBadState))
		return
	}
	s.release(j)
	j.done, j.part, j.pos, j.cells, j.fed = 0, 0, 0, 0, 0
	j.look()
	s.mu.Lock()
	s.stats.Preemptions++
	s.mu.Unlock()
}
