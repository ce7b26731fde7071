// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"afterimage/internal/batch"
	"afterimage/internal/engine"
)

// prompts returns random ones, which share no beginning.
func (r *decodeRun) prompts(n int) [][]int32 {
	out := make([][]int32, n)
	for i := range out {
		out[i] = r.tokens(r.Prompt)
	}
	return out
}

func (r *decodeRun) tokens(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = r.rng.Int32N(r.vocab)
	}
	return out
}

// likeliest is how both sides pick.
func likeliest(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// bare prefills the prompts one by one and decodes them together, with nothing round the calls. It
// returns milliseconds per token.
func (r *decodeRun) bare(prompts [][]int32) (float64, error) {
	for i := range prompts {
		r.run.Truncate(i, 0, 0)
	}
	start := time.Now()
	next := make([]engine.Next, len(prompts))
	for i, toks := range prompts {
		if err := r.run.PrefillTokens(i, 0, toks, true); err != nil {
			return 0, err
		}
		next[i] = engine.Next{Seq: i, Pos: len(toks), Token: likeliest(r.run.Logits(0))}
	}
	for range r.Answer - 1 {
		if err := r.run.Decode(next); err != nil {
			return 0, err
		}
		for i := range next {
			next[i].Pos++
			next[i].Token = likeliest(r.run.Logits(i))
		}
	}
	return r.perToken(time.Since(start), len(prompts)), nil
}

// perToken returns milliseconds per token of n answers.
func (r *decodeRun) perToken(d time.Duration, n int) float64 {
	return milliseconds(d) / float64(n*r.Answer)
}

// scheduledRun is what the scheduler took.
type scheduledRun struct {
	perToken float64
	first    []float64 // time to the first token, by request
}

// scheduled has the scheduler answer the prompts, all submitted at once.
func (r *decodeRun) scheduled(ctx context.Context, prompts [][]int32) (out scheduledRun, err error) {
	sched := batch.New(r.run, batch.Config{StepTokens: r.StepTokens})
	defer sched.Close()
	out.first = make([]float64, len(prompts))
	errs := make([]error, len(prompts))
	start := time.Now()
	var wg sync.WaitGroup
	for i, toks := range prompts {
		wg.Go(func() {
			n := 0
			errs[i] = sched.Ask(ctx, []batch.Part{{Tokens: toks}}, func(l []float32) (int32, bool, error) {
				if n++; n == 1 {
					out.first[i] = milliseconds(time.Since(start))
				}
				return likeliest(l), n < r.Answer, nil
			})
		})
	}
	wg.Wait()
	out.perToken = r.perToken(time.Since(start), len(prompts))
	for _, err := range errs {
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// budgetStep times one step that is full: a budget of prompt tokens, and a token for every other request.
func (r *decodeRun) budgetStep() (float64, error) {
	next := make([]engine.Next, r.Concurrent-1)
	for i := range next {
		r.run.Truncate(i, 0, 0)
		if err := r.run.PrefillTokens(i, 0, r.tokens(r.Prompt), false); err != nil {
			return 0, err
		}
		next[i] = engine.Next{Seq: i, Pos: r.Prompt, Token: 1}
	}
	last := r.Concurrent - 1
	r.run.Truncate(last, 0, 0)
	start := time.Now()
	if err := r.run.Decode(next); err != nil {
		return 0, err
	}
	err := r.run.PrefillTokens(last, 0, r.tokens(r.StepTokens), true)
	return milliseconds(time.Since(start)), err
}

// company answers prompts alone and then together, and counts the logits that have other bits.
func (r *decodeRun) company(ctx context.Context) (differ, total int, err error) {
	prompts := r.prompts(r.Concurrent)
	alone, err := r.alone(ctx, prompts)
	if err != nil {
		return 0, 0, err
	}
	all := batch.New(r.run, batch.Config{StepTokens: r.StepTokens / 3})
	defer all.Close()
	errs := make([]error, len(prompts))
	var wg sync.WaitGroup
	for i, toks := range prompts {
		wg.Go(func() {
			errs[i] = r.quarter(ctx, all, toks, func(step int, l []float32) { // one at a time, on the scheduler's goroutine
				for k, v := range l {
					if total++; math.Float32bits(v) != math.Float32bits(alone[i][step][k]) {
						differ++
					}
				}
			})
		})
	}
	wg.Wait()
	for _, e := range errs {
		if e != nil {
			err = e
		}
	}
	return differ, total, err
}

// alone answers prompts one after the other and returns the logits of each step of each.
func (r *decodeRun) alone(ctx context.Context, prompts [][]int32) ([][][]float32, error) {
	out := make([][][]float32, len(prompts))
	one := batch.New(r.run, batch.Config{StepTokens: math.MaxInt32})
	defer one.Close()
	for i, toks := range prompts {
		err := r.quarter(ctx, one, toks, func(_ int, l []float32) { out[i] = append(out[i], slices.Clone(l)) })
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// quarter asks for the first quarter of an answer and shows the logits of each step.
func (r *decodeRun) quarter(ctx context.Context, sched *batch.Scheduler, toks []int32, seen func(step int, l []float32)) error {
	n := 0
	return sched.Ask(ctx, []batch.Part{{Tokens: toks}}, func(l []float32) (int32, bool, error) {
		seen(n, l)
		n++
		return likeliest(l), n < r.Answer/4, nil
	})
}
