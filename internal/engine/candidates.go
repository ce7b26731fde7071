// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"math"
	"slices"
)

// choose picks from logits as they are.
func (s *Sampler) choose(logits []float32) (int32, error) {
	best := -1
	for i, v := range logits {
		if v == v && (best < 0 || v > logits[best]) {
			best = i
		}
	}
	switch {
	case best < 0 || math.IsInf(float64(logits[best]), -1):
		return 0, ErrNoChoice
	case s.cfg.Temperature == 0 || math.IsInf(float64(logits[best]), 0): // infinities have no weights
		return int32(best), nil
	}
	total := s.weigh(logits, float64(logits[best]))
	if k := s.cfg.TopK; k > 0 && k < len(s.cand) {
		total = s.heaviest(k)
	}
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

// weigh makes a candidate of every token whose weight is not zero and at least MinP, and returns the sum
// of weights.
func (s *Sampler) weigh(logits []float32, best float64) (total float64) {
	if cap(s.cand) < len(logits) {
		s.cand = make([]candidate, 0, len(logits))
	}
	s.cand = s.cand[:0]
	for i, v := range logits {
		if w := math.Exp((float64(v) - best) / s.cfg.Temperature); w > 0 && w >= s.cfg.MinP { // false for NaN
			s.cand = append(s.cand, candidate{int32(i), w})
			total += w
		}
	}
	return total
}

// byWeight orders candidates, the heaviest first.
func byWeight(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.tok, b.tok))
}

// heaviest keeps the k heaviest candidates and returns their sum.
func (s *Sampler) heaviest(k int) (total float64) {
	top := s.cand[:k]
	slices.SortFunc(top, byWeight)
	for _, c := range s.cand[k:] {
		if byWeight(c, top[k-1]) < 0 {
			at, _ := slices.BinarySearchFunc(top, c, byWeight)
			copy(top[at+1:], top[at:])
			top[at] = c
		}
	}
	s.cand = top
	for _, c := range top {
		total += c.weight
	}
	return total
}

// cut keeps the heaviest candidates that together hold TopP of the total, and returns their sum.
func (s *Sampler) cut(total float64, vocab int) float64 {
	// All tokens below this weight together hold less than 1-TopP: leaving them out first keeps the
	// sort short.
	least := (1 - s.cfg.TopP) * total / float64(vocab)
	s.cand = slices.DeleteFunc(s.cand, func(c candidate) bool { return c.weight < least })
	slices.SortFunc(s.cand, byWeight)
	sum := 0.0
	for i, c := range s.cand {
		if sum += c.weight; sum >= s.cfg.TopP*total {
			s.cand = s.cand[:i+1]
			break
		}
	}
	return sum
}
