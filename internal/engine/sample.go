// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// ErrNoChoice: no entry of the logits is a number, so there is no token to pick.
var ErrNoChoice = errors.New("engine: logits hold no number")

// Sampling says how tokens are picked. The zero value picks the likeliest token.
type Sampling struct {
	Temperature float64 // 0 picks the likeliest token, the first of equals
	TopP        float64 // least share of probability to choose from; 0 and 1 mean all
	TopK        int     // most tokens to choose from; 0 means all
	MinP        float64 // least probability to choose from, as a share of the likeliest token's
	Seed        uint64  // equal seeds give equal picks from equal logits

	// Repetition divides the logits of tokens in prompt and answer, where they are positive, and
	// multiplies them else; 0 and 1 change nothing.
	Repetition float64
	Presence   float64 // taken from the logit of each token in the answer
	Frequency  float64 // likewise, as often as it is there
	Bias       map[int32]float32
	// Prompt holds the text of the prompt, for Repetition.
	Prompt []int32
	// Constraint, if not nil, says what the answer may hold. The Sampler uses it up.
	Constraint Constraint
	// Patience is how much time of a core Constraint may take over one token; 0 is 0.1 ms for each entry of the
	// vocabulary, and at least 2 s.
	Patience time.Duration
}

// Validate reports values outside of their range.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0): // true for NaN, too
		return fmt.Errorf("engine: temperature %v, want a number of 0 or more", s.Temperature)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("engine: top_p %v, want 0 to 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("engine: min_p %v, want 0 to 1", s.MinP)
	case s.TopK < 0:
		return fmt.Errorf("engine: top_k %d, want 0 or more", s.TopK)
	case !(s.Repetition >= 0) || math.IsInf(s.Repetition, 0):
		return fmt.Errorf("engine: repetition penalty %v, want a number of 0 or more", s.Repetition)
	case !finite(s.Presence) || !finite(s.Frequency):
		return fmt.Errorf("engine: penalties %v and %v, want numbers", s.Presence, s.Frequency)
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Sampler picks tokens from logits. It is used by one goroutine.
type Sampler struct {
	cfg    Sampling
	rng    *rand.PCG
	cand   []candidate
	work   []float32            // logits as changed by penalties, biases and the constraint
	prompt []int32              // the different tokens of the prompt
	answer map[int32]int        // times that a token was picked
	picked []int32              // the different tokens of the answer, in order
	spent  func() time.Duration // of a core, by the calling thread
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
	cfg.TopP, cfg.Repetition = cmp.Or(cfg.TopP, 1), cmp.Or(cfg.Repetition, 1)
	s := &Sampler{cfg: cfg, rng: rand.NewPCG(cfg.Seed, 0x9e3779b97f4a7c15), answer: map[int32]int{}, spent: threadTime}
	if cfg.Repetition != 1 {
		s.prompt = slices.Clone(cfg.Prompt)
		slices.Sort(s.prompt)
		s.prompt = slices.Compact(s.prompt)
	}
	return s, nil
}

// Close gives up the constraint.
func (s *Sampler) Close() {
	if s.cfg.Constraint != nil {
		s.cfg.Constraint.Close()
	}
}

// Pick returns the next token. NaN is never picked.
func (s *Sampler) Pick(logits []float32) (int32, error) {
	logits = s.adjust(logits)
	tok, err := s.choose(logits)
	if err == nil && s.cfg.Constraint != nil {
		tok, err = s.hold(logits, tok)
	}
	if err != nil {
		return 0, err
	}
	if s.answer[tok]++; s.answer[tok] == 1 {
		s.picked = append(s.picked, tok)
	}
	return tok, nil
}

// adjust returns logits with biases and penalties, in s.work if there are any.
func (s *Sampler) adjust(logits []float32) []float32 {
	c := &s.cfg
	s.work = s.work[:0]
	if len(c.Bias) == 0 && c.Repetition == 1 && c.Presence == 0 && c.Frequency == 0 {
		return logits
	}
	s.work = append(s.work, logits...)
	for tok, b := range c.Bias {
		if int(tok) < len(s.work) {
			s.work[tok] += b
		}
	}
	for _, tok := range s.prompt {
		if s.answer[tok] == 0 {
			s.repeat(tok)
		}
	}
	for _, tok := range s.picked {
		s.repeat(tok)
		s.work[tok] -= float32(c.Presence + c.Frequency*float64(s.answer[tok]))
	}
	return s.work
}

// repeat applies the repetition penalty.
func (s *Sampler) repeat(tok int32) {
	switch v := &s.work[tok]; {
	case s.cfg.Repetition == 1:
	case *v > 0:
		*v = float32(float64(*v) / s.cfg.Repetition)
	default:
		*v = float32(float64(*v) * s.cfg.Repetition)
	}
}
