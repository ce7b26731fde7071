// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"math"
	"slices"
)

// Logprob is a token and its log probability.
type Logprob struct {
	Token   int32
	Logprob float64
}

// Logprobs returns the log probability of tok under logits, and the n likeliest tokens.
func Logprobs(logits []float32, tok int32, n int) (own float64, top []Logprob) {
	best := math.Inf(-1)
	for _, v := range logits {
		if v == v {
			best = max(best, float64(v))
		}
	}
	sum := 0.0
	for _, v := range logits {
		if v == v {
			sum += math.Exp(float64(v) - best)
		}
	}
	norm := best + math.Log(sum)
	order := func(a, b Logprob) int {
		return cmp.Or(cmp.Compare(b.Logprob, a.Logprob), cmp.Compare(a.Token, b.Token))
	}
	for i, v := range logits {
		x := Logprob{int32(i), float64(v) - norm}
		if v != v || n == 0 || len(top) == n && order(x, top[n-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, x, order)
		top = slices.Insert(top, at, x)
		top = top[:min(n, len(top))]
	}
	return float64(logits[tok]) - norm, top
}
