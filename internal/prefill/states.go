// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/openai"
	"afterimage/internal/transport"
)

// HandOff is what a P/D hands computed prompts over with.
type HandOff struct {
	// Arena is memory for states alone: one that waits in that of embeddings, while it holds a sequence, could
	// wait for a request that waits for the sequence.
	Arena  *arena.Arena
	Sender transport.Sender
}

// stateProtocol is the format of the objects of states.
const stateProtocol = embedding.A1

// stateKey names the state of an attempt.
func stateKey(request string) embedding.Key { return embedding.Key("state@id:" + request) }

// stateLayout is that of an object of a state.
func stateLayout(rows int) embedding.Layout {
	return embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}
}

// stateRows is how many rows the logits and state of so many bytes take.
func stateRows(bytes int) int {
	const row = 4 * control.StateCols
	return (bytes + row - 1) / row
}

func stateContract(rows int) embedding.Contract {
	return embedding.Contract{Rows: rows, Cols: control.StateCols, DType: embedding.Float32}
}

// stateBytes is the size of an object of so many rows.
func stateBytes(rows int) int {
	return stateProtocol.ObjectBytes(stateLayout(rows), control.StateCols, embedding.Float32)
}

// states holds computed prompts until a decode worker has them.
type states struct {
	HandOff
	p    *Prefill
	run  engine.States
	turn *semaphore.Weighted // held by the one that waits for memory next

	mu       sync.Mutex // guards what follows
	byName   map[string]*state
	released released // a gateway may not have read that there is a state
	closed   bool
}

// state is one of them. Its reference is the map's.
type state struct {
	buf    *arena.Buf
	expire *time.Timer
}

// newStates returns nil where nothing is handed over.
func newStates(p *Prefill) (*states, error) {
	if p.cfg.HandOff.Arena == nil {
		return nil, nil
	}
	run, ok := p.cfg.Engine.Runner().(engine.States)
	if !ok {
		return nil, errors.New("prefill: this engine cannot hand prompts over to decode workers")
	}
	s := &states{HandOff: p.cfg.HandOff, p: p, run: run, turn: semaphore.NewWeighted(1), byName: map[string]*state{}}
	s.released = newReleased(&s.mu)
	most, err := s.most(p.spec.Context)
	if err != nil {
		return nil, err
	}
	if room := s.Arena.Stats().Capacity; int64(most) > room {
		return nil, fmt.Errorf("prefill: the state of a whole context of %d positions takes %d bytes, and there are %d for states (prefill.handoff_bytes); raise that, or lower engine.context",
			p.spec.Context, most, room)
	}
	return s, nil
}

// most is the size of the object of a prompt of so many cells.
func (s *states) most(cells int) (int, error) {
	n, err := s.run.StateBytes(cells)
	return stateBytes(stateRows(n + 4*s.p.spec.Vocab)), err
}

// reserve waits, in order of arrival, for memory for the state of a prompt.
func (s *states) reserve(ctx context.Context, cells int) (*arena.Buf, error) {
	n, err := s.most(cells)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.p.cfg.GrantTimeout)
	defer cancel()
	late := func() error {
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return openai.Unavailable(retryAfter, "no memory for the state of this request within %v", s.p.cfg.GrantTimeout)
		}
		return context.Cause(ctx)
	}
	if s.turn.Acquire(ctx, 1) != nil {
		return nil, late()
	}
	defer s.turn.Release(1)
	for {
		freed := s.Arena.Freed()
		buf, err := s.Arena.Reserve(n)
		if !errors.Is(err, arena.ErrFull) {
			return buf, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, late()
		}
	}
}

// keep takes the caller's reference of a state, until it is dropped or nobody has asked for it in time.
func (s *states) keep(name string, buf *arena.Buf) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released.take(name) {
		buf.Release()
		return openai.BadRequest("request", "%q is released already", name)
	}
	_, taken := s.byName[name]
	if s.closed || taken {
		buf.Release()
		return openai.Unavailable(retryAfter, "this worker is stopping, or has a state of the name %.80q", name)
	}
	s.byName[name] = &state{buf: buf, expire: time.AfterFunc(s.p.cfg.PrepareTTL, func() { s.drop(name) })}
	return nil
}

// get returns a state with a reference of the caller's, or nil.
func (s *states) get(name string) *arena.Buf {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.byName[name]; st != nil {
		return st.buf.Retain()
	}
	return nil
}

// release lets go of a state, now or when it is there.
func (s *states) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dropLocked(name) && !s.closed {
		s.released.add(name, s.p.cfg.PrepareTTL)
	}
}

// drop lets go of a state, if it is there.
func (s *states) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(name)
}

func (s *states) dropLocked(name string) bool {
	st := s.byName[name]
	if st == nil {
		return false
	}
	st.expire.Stop()
	st.buf.Release()
	delete(s.byName, name)
	return true
}

// register shows the memory of states, its limit next to usage.
func (s *states) register(r prometheus.Registerer) {
	gauge := func(name, help string, f func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "afterimage_prefill_handoff_" + name, Help: help}, f))
	}
	gauge("states", "Computed prompts that are kept until a decode worker has answered.", func() float64 { return float64(s.size()) })
	gauge("memory_bytes", "Memory taken by states of prompts, in the making and kept.", func() float64 {
		st := s.Arena.Stats()
		return float64(st.Reserved + st.Committed)
	})
	gauge("memory_limit_bytes", "Memory for states of prompts (prefill.handoff_bytes).", func() float64 { return float64(s.Arena.Stats().Capacity) })
}

func (s *states) size() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byName)
}

func (s *states) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	var names []string
	for name := range s.byName {
		names = append(names, name)
	}
	s.mu.Unlock()
	for _, name := range names {
		s.drop(name)
	}
}
