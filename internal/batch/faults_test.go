// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"afterimage/internal/engine"
)

// faulty fails whatever is about a token or row of a certain value.
type faulty struct {
	engine.Runner
	bad int32
}

func (f *faulty) PrefillTokens(seq, pos int, toks []int32, logits bool) error {
	if slices.Contains(toks, f.bad) {
		return errFault
	}
	return f.Runner.PrefillTokens(seq, pos, toks, logits)
}

func (f *faulty) Decode(next []engine.Next) error {
	for _, n := range next {
		if n.Token == f.bad {
			return errFault
		}
	}
	return f.Runner.Decode(next)
}

// One request that the engine cannot serve fails alone, in whatever phase.
func TestFaultsHitOneRequest(t *testing.T) {
	model := newModel(t, 4, 512, 0)
	s := newScheduler(t, &faulty{Runner: model.Runner(), bad: 251}, Config{})
	want := ask(t, s, 10, conversation(7)...)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if got := ask(t, s, 10, conversation(7)...); !slices.Equal(got, want) {
				t.Errorf("a neighbour of a fault gets %v, want %v", got, want)
			}
		})
		wg.Go(func() {
			var err error
			var bad *ItemError
			switch layout, rows := picture(1, 20); i % 5 {
			case 0: // in a prompt
				err = s.Ask(limited(t), []Part{{Tokens: append(words(5, 40), 251)}}, (&reader{n: 5}).next)
			case 1: // in a call that others share
				n := 0
				err = s.Ask(limited(t), []Part{{Tokens: words(5, 40)}}, func([]float32) (int32, bool, error) { n++; return 248 + int32(n), true, nil })
			case 2: // in the caller's own code
				err = s.Ask(limited(t), []Part{{Tokens: words(5, 40)}}, func([]float32) (int32, bool, error) { return 0, false, errFault })
			case 3:
				err = s.Ask(limited(t), []Part{{Tokens: words(5, 40)}}, func(l []float32) (int32, bool, error) { return int32(l[len(l)+i]), true, nil })
				if err == nil || !strings.Contains(err.Error(), "index out of range") {
					t.Errorf("a panic in the caller's own code: %v", err)
				}
				return
			case 4:
				copy(rows[80:], []byte{0, 0, 0xc0, 0x7f})
				err = s.Ask(limited(t), []Part{{Tokens: words(5, 40)}, {Layout: layout, Data: rows}, {Tokens: words(3, 3)}}, (&reader{n: 5}).next)
				if !errors.As(err, &bad) || bad.Item != 0 || !errors.Is(err, engine.ErrBadRows) {
					t.Errorf("rows that are no numbers: %v", err)
				}
				return
			}
			if !errors.Is(err, errFault) {
				t.Errorf("case %d: %v, want the fault", i%5, err)
			}
		})
	}
	wg.Wait()
}

// What a sequence holds when a call failed is known to nobody: a prompt that begins like it is computed from the start.
func TestFaultEmptiesItsSequence(t *testing.T) {
	s := newScheduler(t, &faulty{Runner: newModel(t, 2, 512, 0).Runner(), bad: 251}, Config{StepTokens: 16})
	if err := s.Ask(limited(t), []Part{{Tokens: append(words(5, 40), 251)}}, (&reader{n: 5}).next); !errors.Is(err, errFault) {
		t.Fatalf("got %v, want the fault", err)
	}
	ask(t, s, 1, Part{Tokens: words(5, 40)})
	if n := s.Stats().CachedCells; n != 0 {
		t.Errorf("%d cells were taken over from a sequence whose call failed", n)
	}
	ask(t, s, 1, Part{Tokens: words(5, 40)})
	if n := s.Stats().CachedCells; n == 0 {
		t.Error("nothing is taken over from a sequence that is sound")
	}
}
