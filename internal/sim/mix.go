// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Share is one value of a mix and how often it comes relative to others.
type Share struct {
	Value  int
	Weight float64
}

// Mix is a choice between values.
type Mix []Share

// ParseMix reads values with weights, such as "1:0.5,4:0.5", or one value alone.
func ParseMix(text string) (Mix, error) {
	var m Mix
	sum := 0.0
	for part := range strings.SplitSeq(text, ",") {
		value, weight, weighted := strings.Cut(strings.TrimSpace(part), ":")
		v, err := strconv.Atoi(value)
		w := 1.0
		if weighted && err == nil {
			w, err = strconv.ParseFloat(weight, 64)
		}
		if err != nil || v < 0 || !(w >= 0 && w < 1e9) {
			return nil, fmt.Errorf("%q in %q: write VALUE or VALUE:WEIGHT, such as 1:0.5,4:0.5", part, text)
		}
		sum += w
		m = append(m, Share{v, w})
	}
	if sum <= 0 {
		return nil, fmt.Errorf("%q: all weights are 0", text)
	}
	return m, nil
}

// Pick draws a value.
func (m Mix) Pick(r *rand.Rand) int {
	if len(m) == 1 {
		return m[0].Value
	}
	sum := 0.0
	for _, s := range m {
		sum += s.Weight
	}
	at := r.Float64() * sum
	for _, s := range m {
		if at -= s.Weight; at < 0 {
			return s.Value
		}
	}
	return m[len(m)-1].Value
}

// Max returns the largest value.
func (m Mix) Max() int {
	return slices.MaxFunc(m, func(a, b Share) int { return a.Value - b.Value }).Value
}
