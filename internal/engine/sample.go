// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// ErrNoChoice: no entry of the logits is a number, so there is no token to pick.
var ErrNoChoice = errors.New("engine: logits hold no number")

// Sampling says how tokens are picked. The zero value picks the likeliest token.
type Sampling struct {
	Temperature float64 // 0 picks the likeliest token, the first of equals
	TopP        float64 // least share of probability to choose from; 0 and 1 mean all
	Seed        uint64  // equal seeds give equal picks from equal logits
}

// Validate reports a Temperature that is negative or no number, and a TopP outside of 0 to 1.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0): // true for NaN, too
		return fmt.Errorf("engine: temperature %v, want a number of 0 or more", s.Temperature)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("engine: top_p %v, want 0 to 1", s.TopP)
	}
	return nil
}

// Sampler picks tokens from logits. It is used by one goroutine and allocates only on its first pick.
type Sampler struct {
	cfg  Sampling
	rng  *rand.PCG
	cand []candidate
}

// candidate is a token and its weight, which is relative to the likeliest token's 1.
type candidate struct {
	tok    int32
	weight float64
}

// NewSampler returns a sampler at the start of its seed's sequence.
func NewSampler(cfg Sampling) (*Sampler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.TopP == 0 {
		cfg.TopP = 1
	}
	return &Sampler{cfg: cfg, rng: rand.NewPCG(cfg.Seed, 0x9e3779b97f4a7c15)}, nil
}

// Pick returns the next token. NaN is never picked.
func (s *Sampler) Pick(logits []float32) (int32, error) {
	best := -1
	for i, v := range logits {
		if v == v && (best < 0 || v > logits[best]) {
			best = i
		}
	}
	switch {
	case best < 0:
		return 0, ErrNoChoice
	case s.cfg.Temperature == 0 || math.IsInf(float64(logits[best]), 0): // infinities have no weights
		return int32(best), nil
	}
	total := s.weigh(logits, float64(logits[best]))
	if s.cfg.TopP < 1 {
		total = s.cut(total, len(logits))
	}
	x := s.uniform() * total
	for _, c := range s.cand {
		if x -= c.weight; x < 0 {
			return c.tok, nil
		}
	}
	// Rounding can leave a rest; the last candidate has a weight, as zeros are left out.
	return s.cand[len(s.cand)-1].tok, nil
}

// uniform returns a number in [0, 1) with 53 random bits.
func (s *Sampler) uniform() float64 { return float64(s.rng.Uint64()>>11) / (1 << 53) }

// weigh makes a candidate of every token whose weight is not zero, and returns the sum of weights.
func (s *Sampler) weigh(logits []float32, best float64) (total float64) {
	if cap(s.cand) < len(logits) {
		s.cand = make([]candidate, 0, len(logits))
	}
	s.cand = s.cand[:0]
	for i, v := range logits {
		if w := math.Exp((float64(v) - best) / s.cfg.Temperature); w > 0 { // false for NaN
			s.cand = append(s.cand, candidate{int32(i), w})
			total += w
		}
	}
	return total
}

// cut keeps the heaviest candidates that together hold TopP of the total, and returns their sum.
func (s *Sampler) cut(total float64, vocab int) float64 {
	// All tokens below this weight together hold less than 1-TopP: leaving them out first keeps the
	// sort short.
	least := (1 - s.cfg.TopP) * total / float64(vocab)
	s.cand = slices.DeleteFunc(s.cand, func(c candidate) bool { return c.weight < least })
	slices.SortFunc(s.cand, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.tok, b.tok))
	})
	sum := 0.0
	for i, c := range s.cand {
		if sum += c.weight; sum >= s.cfg.TopP*total {
			s.cand = s.cand[:i+1]
			break
		}
	}
	return sum
}
