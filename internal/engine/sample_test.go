// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"math"
	"slices"
	"testing"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// picks returns n tokens from the same logits.
func picks(t *testing.T, cfg Sampling, logits []float32, n int) []int32 {
	t.Helper()
	s, err := NewSampler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]int32, n)
	for i := range out {
		if out[i], err = s.Pick(logits); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestGreedy(t *testing.T) {
	f := func(want int32, logits ...float32) {
		t.Helper()
		if got := picks(t, Sampling{}, logits, 1)[0]; got != want {
			t.Errorf("logits %v: got token %d, want %d", logits, got, want)
		}
	}
	f(0, 1)
	f(2, 1, 2, 3)
	f(1, -5, 4, 4, 4) // the first of equals
	f(0, 0, float32(math.Copysign(0, -1)))
	f(2, nan, -1, 3, nan)
	f(1, nan, -9, nan)
	f(3, 1, 2, 3, inf)
}

func TestPickRefusesLogitsWithoutNumbers(t *testing.T) {
	for _, temperature := range []float64{0, 1} {
		s, err := NewSampler(Sampling{Temperature: temperature})
		if err != nil {
			t.Fatal(err)
		}
		for _, logits := range [][]float32{nil, {}, {nan, nan}, {-inf, nan}} {
			if _, err := s.Pick(logits); !errors.Is(err, ErrNoChoice) {
				t.Errorf("temperature %v, logits %v: got error %v, want ErrNoChoice", temperature, logits, err)
			}
		}
	}
}

func TestSeeds(t *testing.T) {
	logits := []float32{0, 0.5, 1, 1.5, 2, nan, -inf}
	a := picks(t, Sampling{Temperature: 1, Seed: 7}, logits, 100)
	if b := picks(t, Sampling{Temperature: 1, Seed: 7}, logits, 100); !slices.Equal(a, b) {
		t.Errorf("equal seeds give %v and %v", a, b)
	}
	if b := picks(t, Sampling{Temperature: 1, Seed: 8}, logits, 100); slices.Equal(a, b) {
		t.Errorf("seeds 7 and 8 both give %v", a)
	}
	if slices.Contains(a, 5) || slices.Contains(a, 6) {
		t.Errorf("picked NaN or -Inf: %v", a)
	}
}

// TestShares compares how often tokens are picked with the softmax of the logits.
func TestShares(t *testing.T) {
	logits := []float32{0, 1, 2, 3}
	const n = 40000
	f := func(cfg Sampling, want ...float64) {
		t.Helper()
		count := make([]float64, len(logits))
		for _, tok := range picks(t, cfg, logits, n) {
			count[tok]++
		}
		for i := range want {
			// Four standard deviations of a binomial share.
			if got, room := count[i]/n, 4*math.Sqrt(want[i]*(1-want[i])/n); math.Abs(got-want[i]) > room {
				t.Errorf("%+v: token %d has share %.4f, want %.4f +- %.4f", cfg, i, got, want[i], room)
			}
		}
	}
	f(Sampling{Temperature: 1}, 0.0321, 0.0871, 0.2369, 0.6439)
	f(Sampling{Temperature: 0.5}, 0.0021, 0.0158, 0.1171, 0.8650)
	f(Sampling{Temperature: 1, TopP: 1}, 0.0321, 0.0871, 0.2369, 0.6439)
	f(Sampling{Temperature: 1, TopP: 0.8}, 0, 0, 0.2689, 0.7311)
	f(Sampling{Temperature: 1, TopP: 0.9}, 0, 0.0900, 0.2447, 0.6652)
	f(Sampling{Temperature: 1, TopP: 1e-9}, 0, 0, 0, 1)
	f(Sampling{Temperature: 1e-9}, 0, 0, 0, 1)
}

func TestTopPKeepsTheFirstOfEquals(t *testing.T) {
	for _, tok := range picks(t, Sampling{Temperature: 1, TopP: 0.5}, []float32{1, 1, 1, 1}, 200) {
		if tok > 1 {
			t.Fatalf("picked token %d, want 0 or 1, which hold half of the probability", tok)
		}
	}
}

func TestSamplingRefusesBadValues(t *testing.T) {
	for _, cfg := range []Sampling{
		{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)},
		{TopP: -0.1}, {TopP: 1.1}, {TopP: math.NaN()},
	} {
		if _, err := NewSampler(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	logits := make([]float32, 5000)
	for i := range logits {
		logits[i] = float32(i%97) / 10
	}
	for _, cfg := range []Sampling{{}, {Temperature: 1}, {Temperature: 1, TopP: 0.9}} {
		s, err := NewSampler(cfg)
		if err != nil {
			t.Fatal(err)
		}
		pick := func() {
			if _, err := s.Pick(logits); err != nil {
				t.Fatal(err)
			}
		}
		pick()
		if n := testing.AllocsPerRun(20, pick); n != 0 {
			t.Errorf("%+v: %v allocations per pick", cfg, n)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	logits := make([]float32, 49152)
	for i := range logits {
		logits[i] = float32(i*7919%len(logits)) / 4000
	}
	s, err := NewSampler(Sampling{Temperature: 0.8, TopP: 0.95})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Pick(logits); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCandidates says which tokens of a distribution are ever picked.
func TestCandidates(t *testing.T) {
	logits := []float32{3, 0, 2.5, 1, 2, nan, 3}
	f := func(cfg Sampling, want ...int32) {
		t.Helper()
		cfg.Temperature = 1
		got := picks(t, cfg, logits, 3000)
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%+v: picked %v, want %v", cfg, got, want)
		}
	}
	f(Sampling{}, 0, 1, 2, 3, 4, 6)
	f(Sampling{TopK: 1}, 0)
	f(Sampling{TopK: 2}, 0, 6)
	f(Sampling{TopK: 4}, 0, 2, 4, 6)
	f(Sampling{TopK: 100}, 0, 1, 2, 3, 4, 6)
	f(Sampling{MinP: 0.5}, 0, 2, 6)
	f(Sampling{MinP: 1}, 0, 6)
	f(Sampling{TopK: 3, TopP: 0.6}, 0, 6)
	f(Sampling{Bias: map[int32]float32{1: 100, 99: 5}}, 1)
	f(Sampling{TopK: 5, Bias: map[int32]float32{0: -100, 6: -100}}, 1, 2, 3, 4)
}

// TestPenalties follows the greedy choice while what was picked loses weight.
func TestPenalties(t *testing.T) {
	f := func(cfg Sampling, logits []float32, want ...int32) {
		t.Helper()
		if got := picks(t, cfg, logits, len(want)); !slices.Equal(got, want) {
			t.Errorf("%+v: picked %v, want %v", cfg, got, want)
		}
	}
	logits := []float32{2, 1.5, 1.2}
	f(Sampling{Presence: 0.6}, logits, 0, 1, 0, 0)
	f(Sampling{Frequency: 0.6}, logits, 0, 1, 0, 2)
	f(Sampling{Frequency: -0.6}, logits, 0, 0, 0)
	f(Sampling{Repetition: 1.5}, logits, 0, 1, 0)
	f(Sampling{Repetition: 1.5, Prompt: []int32{0, 0, 7}[:2]}, logits, 1, 0)
	f(Sampling{Repetition: 2}, []float32{-1, -1.5, -9}, 0, 1, 0)
}

// evens allows even tokens, each once.
type evens struct{ seen []int32 }

func (e *evens) Allows(tok int32) bool { return tok%2 == 0 && !slices.Contains(e.seen, tok) }
func (e *evens) Accept(tok int32)      { e.seen = append(e.seen, tok) }
func (e *evens) Close()                {}

func (e *evens) Mask(logits []float32) {
	for i := range logits {
		if !e.Allows(int32(i)) {
			logits[i] = -inf
		}
	}
}

func TestConstraint(t *testing.T) {
	logits := []float32{1, 9, 3, 8, 2}
	if got := picks(t, Sampling{Constraint: &evens{}}, logits, 3); !slices.Equal(got, []int32{2, 4, 0}) {
		t.Errorf("picked %v", got)
	}
	if got := picks(t, Sampling{Constraint: &evens{}, Bias: map[int32]float32{0: 5}, Temperature: 0.1, TopK: 1}, logits, 3); !slices.Equal(got, []int32{0, 2, 4}) {
		t.Errorf("with a bias: picked %v", got)
	}
	s, err := NewSampler(Sampling{Constraint: &evens{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pick([]float32{-inf, 9}); !errors.Is(err, ErrNoChoice) {
		t.Errorf("nothing is allowed: %v", err)
	}
	if logits[1] != 9 {
		t.Error("the caller's logits were changed")
	}
}

func TestLogprobs(t *testing.T) {
	logits := []float32{0, nan, float32(math.Log(2)), float32(math.Log(5)), float32(math.Log(2))}
	own, top := Logprobs(logits, 0, 3)
	if math.Abs(own-math.Log(0.1)) > 1e-6 {
		t.Errorf("log probability %v, want that of 0.1", own)
	}
	want := []Logprob{{3, math.Log(0.5)}, {2, math.Log(0.2)}, {4, math.Log(0.2)}}
	for i, w := range want {
		if top[i].Token != w.Token || math.Abs(top[i].Logprob-w.Logprob) > 1e-6 {
			t.Errorf("rank %d is %+v, want %+v", i, top[i], w)
		}
	}
	if _, top := Logprobs(logits, 0, 0); len(top) != 0 {
		t.Errorf("%v without being asked", top)
	}
}
