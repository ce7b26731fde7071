// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Supervisor runs the processes of one Config. Start and Stop are called once each, in this order;
// the rest may be called from any goroutine at any time.
type Supervisor struct {
	cfg    Config
	stages [][]*process // by stage, in order of start
	wg     sync.WaitGroup

	// The lifeline. Children inherit the read end; nobody writes.
	lifelineRead, lifelineWrite *os.File

	mu     sync.Mutex // guards the fields below; held while OnChange runs
	status []Status   // in the order of Config.Specs
	known  Known
}

// New checks cfg and makes a Supervisor. Nothing runs yet.
func New(cfg Config) (*Supervisor, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Supervisor{cfg: cfg, known: Known{}}
	byStage := map[int][]*process{}
	for _, spec := range cfg.Specs {
		s.status = append(s.status, Status{Name: spec.Name, Role: spec.Role, State: Waiting})
		byStage[spec.Stage] = append(byStage[spec.Stage], &process{
			spec: spec,
			s:    s,
			back: backoff{min: cfg.BackoffMin, max: cfg.BackoffMax},
			kill: make(chan struct{}),
			done: make(chan struct{}),
		})
	}
	for _, n := range slices.Sorted(maps.Keys(byStage)) {
		stage := byStage[n]
		first := make(chan error, len(stage))
		for _, p := range stage {
			p.first = first
		}
		s.stages = append(s.stages, stage)
	}
	return s, nil
}

// Start starts all processes and returns once they are ready. If one cannot get ready or ctx ends it
// says why; the processes started so far run until Stop, which must be called in any case.
func (s *Supervisor) Start(ctx context.Context) error {
	var err error
	if s.lifelineRead, s.lifelineWrite, err = os.Pipe(); err != nil {
		return fmt.Errorf("supervise: lifeline: %w", err)
	}
	if err := s.openLogs(); err != nil {
		return err
	}
	for _, stage := range s.stages {
		for _, p := range stage {
			// The processes outlive ctx: Stop ends them in order.
			pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
			p.cancel = cancel
			s.wg.Go(func() { p.run(pctx) })
		}
		if err := awaitStage(ctx, stage); err != nil {
			return err
		}
	}
	return nil
}

// awaitStage returns once all of stage are ready or one of them never will be.
func awaitStage(ctx context.Context, stage []*process) error {
	for range stage {
		select {
		case err := <-stage[0].first:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// openLogs gives each process its output.
func (s *Supervisor) openLogs() error {
	width := 0
	for _, spec := range s.cfg.Specs {
		width = max(width, len(spec.Name))
	}
	shared := &sink{w: s.cfg.Logs}
	for _, p := range slices.Concat(s.stages...) {
		p.out = &lineWriter{sink: shared, prefix: fmt.Sprintf("%-*s | ", width, p.spec.Name), noise: p.spec.Noise}
		if s.cfg.LogDir == "" {
			continue
		}
		if err := os.MkdirAll(s.cfg.LogDir, 0o755); err != nil {
			return fmt.Errorf("supervise: log directory: %w", err)
		}
		name := filepath.Join(s.cfg.LogDir, p.spec.Name+".log")
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("supervise: log file: %w", err)
		}
		p.log = f
		p.out = &lineWriter{sink: &sink{w: f}}
	}
	return nil
}

// Stop ends all processes in reverse order of their start and removes the run directory. Children
// that do not end in their share of StopTimeout are killed; when ctx ends, all are.
func (s *Supervisor) Stop(ctx context.Context) error {
	deadline := time.Now().Add(s.cfg.StopTimeout)
	for i, stage := range slices.Backward(s.stages) {
		// Half of what is left: the first to stop is the one with clients to finish.
		share := time.Until(deadline)
		if i > 0 {
			share /= 2
		}
		s.stopStage(ctx, stage, share)
	}
	s.wg.Wait()
	var errs []error
	for _, p := range slices.Concat(s.stages...) {
		if p.log != nil {
			errs = append(errs, p.log.Close())
		}
	}
	if s.lifelineWrite != nil {
		s.lifelineWrite.Close()
		s.lifelineRead.Close()
	}
	if err := removeRunDir(s.cfg.RunDir); err != nil {
		errs = append(errs, fmt.Errorf("supervise: run directory: %w", err))
	}
	return errors.Join(errs...)
}

// stopStage ends the processes of one stage side by side.
func (s *Supervisor) stopStage(ctx context.Context, stage []*process, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, p := range stage {
		if p.cancel != nil {
			p.cancel()
		}
	}
	for _, p := range stage {
		if p.cancel == nil {
			continue // never started
		}
		select {
		case <-p.done:
			continue
		case <-timer.C:
			timer.Reset(0) // for the others of the stage
		case <-ctx.Done():
		}
		close(p.kill)
	}
	for _, p := range stage {
		if p.cancel != nil {
			<-p.done
		}
	}
}

// Status returns a snapshot of all processes in the order of Config.Specs.
func (s *Supervisor) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.status)
}

func (s *Supervisor) change(name string, change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.status, func(st Status) bool { return st.Name == name })
	before := s.status[i]
	change(&s.status[i])
	if s.status[i] != before && s.cfg.OnChange != nil {
		s.cfg.OnChange(s.status[i])
	}
}

func (s *Supervisor) knownNow() Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.known)
}

func (s *Supervisor) setKnown(name string, l Listening) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = l
}
