// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"afterimage/internal/engine"
)

// take has s compute a prompt and returns what another scheduler goes on from.
func take(t *testing.T, s *Scheduler, parts []Part) *State {
	t.Helper()
	var st *State
	err := s.AskFor(limited(t), Request{HandOff: func(c Computed) error {
		data := make([]byte, 64*(c.Cells+1))
		n, err := c.Save(data)
		st = &State{Cells: c.Cells, Positions: c.Positions, Logits: slices.Clone(c.Logits), Data: data[:n]}
		return err
	}}, parts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// resume goes on from st and returns n tokens. before is called before each is picked.
func resume(t *testing.T, s *Scheduler, n int, st *State, before func()) []int32 {
	t.Helper()
	r := &reader{n: n}
	next := func(logits []float32) (int32, bool, error) { before(); return r.next(logits) }
	if err := s.AskFor(limited(t), Request{Next: next, Cells: st.Cells, State: st}, nil); err != nil {
		t.Error(err)
	}
	return r.toks
}

// TestStatesMoveBetweenSchedulers: an answer that goes on elsewhere is the one that would have been, also where
// the memory there runs out on the way, and what was computed is kept for prompts that begin alike.
func TestStatesMoveBetweenSchedulers(t *testing.T) {
	one := newScheduler(t, newModel(t, 1, 512, 0).Runner(), Config{})
	first := newScheduler(t, newModel(t, 2, 512, 0).Runner(), Config{StepTokens: 20})
	second := newScheduler(t, newModel(t, 4, 512, 520).Runner(), Config{})
	const requests, n = 24, 60
	var want [requests][]int32
	var states [requests]*State
	for i := range requests {
		want[i], states[i] = ask(t, one, n, conversation(i)...), take(t, first, conversation(i))
	}
	var wg sync.WaitGroup
	// The first to pick a token waits for all the others to come, so that they do run out of memory.
	all := sync.OnceFunc(func() {
		for s := second.Stats(); s.Running+s.Waiting < requests; s = second.Stats() {
			runtime.Gosched()
		}
	})
	for i, st := range states {
		wg.Go(func() {
			if got := resume(t, second, n, st, all); !slices.Equal(got, want[i]) {
				t.Errorf("request %d: got %v, want %v", i, got, want[i])
			}
		})
	}
	wg.Wait()
	if s := second.Stats(); s.Preemptions == 0 || s.Running+s.Waiting+s.UsedCells != 0 {
		t.Errorf("the memory never ran out, or is not free at the end: %+v", s)
	}
	kept := first.Stats().CachedCells
	if take(t, first, conversation(requests-1)); first.Stats().CachedCells <= kept {
		t.Error("a prompt that was handed over was not kept")
	}
}

func TestBadStatesAreRefused(t *testing.T) {
	s := newScheduler(t, newModel(t, 2, 64, 0).Runner(), Config{})
	good := take(t, s, []Part{{Tokens: words(3, 9)}})
	next := (&reader{n: 4}).next
	f := func(want error, r Request) {
		t.Helper()
		if err := s.AskFor(limited(t), r, nil); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	bad := *good
	bad.Data = bad.Data[1:]
	f(engine.ErrBadState, Request{Next: next, Cells: 9, State: &bad})
	f(engine.ErrBadState, Request{Next: next, Cells: 8, State: good})
	f(engine.ErrBadState, Request{Next: next, State: &State{}})
	f(engine.ErrContextFull, Request{Next: next, Cells: 64, State: &State{Cells: 64}})
	f(engine.ErrBadState, Request{Next: next, Cells: 9, State: good, Prompt: []Segment{{Tokens: []int32{1}, Item: -1}}})
	if got, want := resume(t, s, 5, good, func() {}), ask(t, s, 5, Part{Tokens: words(3, 9)}); !slices.Equal(got, want) {
		t.Errorf("after bad ones: got %v, want %v", got, want)
	}

	stateless := newScheduler(t, struct{ engine.Runner }{newModel(t, 1, 64, 0).Runner()}, Config{})
	if err := stateless.AskFor(limited(t), Request{Next: next, Cells: 9, State: good}, nil); !errors.Is(err, engine.ErrBadState) {
		t.Errorf("an engine without states: %v", err)
	}
}

func TestFaultsOfHandingOverStayAlone(t *testing.T) {
	s := newScheduler(t, newModel(t, 2, 64, 0).Runner(), Config{})
	full := errors.New("full")
	err := s.AskFor(limited(t), Request{HandOff: func(Computed) error { return full }}, []Part{{Tokens: words(1, 5)}})
	if !errors.Is(err, full) {
		t.Errorf("got %v, want the error of HandOff", err)
	}
	err = s.AskFor(limited(t), Request{HandOff: func(Computed) error { panic("odd") }}, []Part{{Tokens: words(1, 5)}})
	if err == nil || !strings.Contains(err.Error(), "panicked: odd") {
		t.Errorf("got %v, want the panic", err)
	}
	if got := ask(t, s, 3, Part{Tokens: words(1, 5)}); len(got) != 3 {
		t.Errorf("the scheduler answers %v", got)
	}
}
