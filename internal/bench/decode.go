// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"afterimage/internal/engine"
)

// Decode measures what the scheduler of a P/D costs: against a bare loop over the same sequences of the
// same Runner, in the same process.
type Decode struct {
	// Open loads the text model with slots sequences. It is called once.
	Open     func(slots int) (engine.Text, error)
	Progress io.Writer // for people; nil for none

	Rounds     int // each way is measured that often, in turns; the best of each counts
	Concurrent int // requests at once
	Prompt     int // tokens of each prompt
	Answer     int // tokens of each answer
	StepTokens int // as prefill.step_tokens
}

// DefaultDecode returns the figures that the targets are stated for.
func DefaultDecode() Decode {
	return Decode{Rounds: 8, Concurrent: 8, Prompt: 64, Answer: 32, StepTokens: 128}
}

// Targets of decode: times, as shares of the bare loop's, and of the bound that the budget sets.
const (
	maxTogether = 1 / 0.95
	maxAlone    = 1 / 0.98
	maxTTFT     = 1.5
)

// decodeRun is Decode at work.
type decodeRun struct {
	Decode
	run   engine.Runner
	rng   *rand.Rand
	vocab int32
}

// Run measures.
func (d Decode) Run(ctx context.Context) (Report, error) {
	p := newProgress(d.Progress)
	defer p.end()
	p.step("loading the model")
	text, err := d.Open(d.Concurrent)
	if err != nil {
		return Report{}, err
	}
	defer text.Close()
	spec := text.Spec()
	r := &decodeRun{Decode: d, run: text.Runner(), rng: rand.New(rand.NewPCG(1, 1)), vocab: int32(spec.Vocab)}
	if need := max(d.Prompt, d.StepTokens) + d.Answer; need > spec.Context {
		return Report{}, fmt.Errorf("bench: %d positions do not fit the model's context of %d", need, spec.Context)
	}
	note := fmt.Sprintf("%s on %s; %d requests of %d prompt tokens and %d answer tokens, in one process, without HTTP; the best of %d rounds in turns",
		spec.Model, Machine(), d.Concurrent, d.Prompt, d.Answer, d.Rounds)
	if spec.Modelled {
		note += "; the device is modelled"
	}
	rows, err := r.rows(ctx, p)
	return Report{Name: "decode", Note: note, Rows: rows}, err
}

// rows measures all rows.
func (r *decodeRun) rows(ctx context.Context, p *progress) ([]Row, error) {
	best := map[string]float64{}
	keep := func(name string, ms float64) {
		if v, ok := best[name]; !ok || ms < v {
			best[name] = ms
		}
	}
	var ttfts, bounds []float64
	p.step("measuring %d rounds", r.Rounds)
	for i := range r.Rounds {
		p.at(i+1, r.Rounds)
		for _, n := range []int{1, 1, 1, r.Concurrent} { // one alone is over soon
			prompts := r.prompts(n)
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			cpu := processCPU()
			ms, err := r.bare(prompts)
			if err != nil {
				return nil, err
			}
			keep(fmt.Sprint("bare ", n), ms)
			keep(fmt.Sprint("bare cpu ", n), r.perToken(processCPU()-cpu, n))
			cpu = processCPU()
			got, err := r.scheduled(ctx, prompts)
			if err != nil {
				return nil, err
			}
			keep(fmt.Sprint("ours ", n), got.perToken)
			keep(fmt.Sprint("ours cpu ", n), r.perToken(processCPU()-cpu, n))
			if n == 1 {
				bounds = append(bounds, got.first[0])
			} else {
				ttfts = append(ttfts, got.first...)
			}
		}
		step, err := r.budgetStep()
		if err != nil {
			return nil, err
		}
		keep("step", step)
	}
	differ, logits, err := r.company(ctx)
	if err != nil {
		return nil, err
	}
	bound := slices.Min(bounds) + float64(r.Concurrent-1)*best["step"]
	many := fmt.Sprintf("%d at once", r.Concurrent)
	of := func(what string) (ours, bare float64) {
		name := fmt.Sprint(what, r.Concurrent)
		return best["ours "+name], best["bare "+name]
	}
	ours, bare := of("")
	cpu, bareCPU := of("cpu ")
	return []Row{
		Against(many, "ms per token", ours, "bare loop", bare, maxTogether),
		Against("one alone", "ms per token", best["ours 1"], "bare loop", best["bare 1"], maxAlone),
		Against(many, "first token p95 ms", Quantile(ttfts, 0.95), "idle + a step per request before it", bound, maxTTFT),
		// CPU time tells what the scheduler costs also where other work takes the cores.
		Against(many, "CPU ms per token", cpu, "bare loop", bareCPU, 0),
		Against("one alone", "CPU ms per token", best["ours cpu 1"], "bare loop", best["bare cpu 1"], 0),
		Absolute(many, "tokens per second", 1000/ours, 0),
		Absolute("one alone", "tokens per second", 1000/best["ours 1"], 0),
		Absolute(fmt.Sprintf("in company, of %d logits", logits), "other bits than alone", float64(differ), 0),
	}, nil
}
