// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
)

// Kind says how popularity is spread over images.
type Kind string

// The kinds of popularity.
const (
	Zipf   Kind = "zipf"   // the k-th most popular of Distinct images comes in proportion to k^-S
	Even   Kind = "even"   // each of Distinct images as often
	Unique Kind = "unique" // no image comes twice
)

// Popularity says how often which image comes.
type Popularity struct {
	Kind     Kind
	Distinct int     // images; not for Unique
	S        float64 // exponent of Zipf
}

// ParsePopularity reads zipf:S:N, even:N or unique.
func ParsePopularity(text string) (Popularity, error) {
	parts := strings.Split(text, ":")
	p := Popularity{Kind: Kind(parts[0])}
	var err error
	switch {
	case p.Kind == Unique && len(parts) == 1:
	case p.Kind == Even && len(parts) == 2:
		p.Distinct, err = strconv.Atoi(parts[1])
	case p.Kind == Zipf && len(parts) == 3:
		var err2 error
		p.S, err = strconv.ParseFloat(parts[1], 64)
		p.Distinct, err2 = strconv.Atoi(parts[2])
		err = errors.Join(err, err2)
	default:
		err = errors.New("unknown")
	}
	if err == nil {
		err = p.validate()
	}
	if err != nil {
		return p, fmt.Errorf("popularity %q: write zipf:S:N, such as zipf:0.9:10000, even:N or unique", text)
	}
	return p, nil
}

// maxDistinct bounds the table of a popularity.
const maxDistinct = 1 << 26

func (p Popularity) validate() error {
	if p.Kind != Unique && (p.Distinct < 1 || p.Distinct > maxDistinct) || p.Kind == Zipf && !(p.S >= 0 && p.S <= 10) {
		return fmt.Errorf("sim: popularity %v is out of range", p)
	}
	return nil
}

// String returns text that ParsePopularity reads as p.
func (p Popularity) String() string {
	switch p.Kind {
	case Zipf:
		return fmt.Sprintf("zipf:%v:%d", p.S, p.Distinct)
	case Even:
		return fmt.Sprintf("even:%d", p.Distinct)
	}
	return string(p.Kind)
}

// A Sampler draws images. It is not safe for use from several goroutines.
type Sampler struct {
	p     Popularity
	rand  *rand.Rand
	total []float64 // Zipf: cumulative weights
	drawn uint32    // Unique
}

// NewSampler returns a source of images. Equal arguments draw equal images.
func NewSampler(p Popularity, seed uint64) (*Sampler, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	s := &Sampler{p: p, rand: rand.New(rand.NewPCG(seed, 0x517cc1b727220a95))}
	if p.Kind != Zipf {
		return s, nil
	}
	sum := 0.0
	s.total = make([]float64, p.Distinct)
	for k := range s.total {
		sum += math.Pow(float64(k+1), -p.S)
		s.total[k] = sum
	}
	return s, nil
}

// Next draws an image.
func (s *Sampler) Next() uint32 {
	switch s.p.Kind {
	case Zipf:
		at := s.rand.Float64() * s.total[len(s.total)-1]
		return uint32(min(sort.SearchFloat64s(s.total, at), len(s.total)-1))
	case Even:
		return uint32(s.rand.IntN(s.p.Distinct))
	}
	s.drawn++
	return s.drawn - 1
}
