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

// decodeTimes are what the rounds of a decodeRun took.
type decodeTimes struct {
	best   map[string]float64 // by way and requests at once
	alone  []float64          // milliseconds until the first token, of one request alone
	amidst []float64          // likewise, of each of several at once
}

func (t *decodeTimes) keep(name string, ms float64) {
	if v, ok := t.best[name]; !ok || ms < v {
		t.best[name] = ms
	}
}

// rows measures all rows.
func (r *decodeRun) rows(ctx context.Context, p *progress) ([]Row, error) {
	t := &decodeTimes{best: map[string]float64{}}
	p.step("measuring %d rounds", r.Rounds)
	for i := range r.Rounds {
		p.at(i+1, r.Rounds)
		if err := r.round(ctx, t); err != nil {
			return nil, err
		}
	}
	differ, logits, err := r.company(ctx)
	if err != nil {
		return nil, err
	}
	return append(r.timeRows(t),
		Absolute(fmt.Sprintf("in company, of %d logits", logits), "other bits than alone", float64(differ), 0)), nil
}

// round measures both ways with one request and with several, and a step that is full.
func (r *decodeRun) round(ctx context.Context, t *decodeTimes) error {
	for _, n := range []int{1, 1, 1, r.Concurrent} { // one alone is over soon
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.both(ctx, t, n); err != nil {
			return err
		}
	}
	step, err := r.budgetStep()
	if err != nil {
		return err
	}
	t.keep("step", step)
	return nil
}

// both has n requests answered by the bare loop, and then by the scheduler.
func (r *decodeRun) both(ctx context.Context, t *decodeTimes, n int) error {
	prompts := r.prompts(n)
	cpu := processCPU()
	ms, err := r.bare(prompts)
	if err != nil {
		return err
	}
	t.keep(fmt.Sprint("bare ", n), ms)
	t.keep(fmt.Sprint("bare cpu ", n), r.perToken(processCPU()-cpu, n))
	cpu = processCPU()
	got, err := r.scheduled(ctx, prompts)
	if err != nil {
		return err
	}
	t.keep(fmt.Sprint("ours ", n), got.perToken)
	t.keep(fmt.Sprint("ours cpu ", n), r.perToken(processCPU()-cpu, n))
	if n == 1 {
		t.alone = append(t.alone, got.first[0])
	} else {
		t.amidst = append(t.amidst, got.first...)
	}
	return nil
}

// timeRows holds the times of both ways against each other.
func (r *decodeRun) timeRows(t *decodeTimes) []Row {
	bound := slices.Min(t.alone) + float64(r.Concurrent-1)*t.best["step"]
	many := fmt.Sprintf("%d at once", r.Concurrent)
	of := func(what string) (ours, bare float64) {
		name := fmt.Sprint(what, r.Concurrent)
		return t.best["ours "+name], t.best["bare "+name]
	}
	ours, bare := of("")
	cpu, bareCPU := of("cpu ")
	return []Row{
		Against(many, "ms per token", ours, "bare loop", bare, maxTogether),
		Against("one alone", "ms per token", t.best["ours 1"], "bare loop", t.best["bare 1"], maxAlone),
		Against(many, "first token p95 ms", Quantile(t.amidst, 0.95), "idle + a step per request before it", bound, maxTTFT),
		// CPU time tells what the scheduler costs also where other work takes the cores.
		Against(many, "CPU ms per token", cpu, "bare loop", bareCPU, 0),
		Against("one alone", "CPU ms per token", t.best["ours cpu 1"], "bare loop", t.best["bare cpu 1"], 0),
		Absolute(many, "tokens per second", 1000/ours, 0),
		Absolute("one alone", "tokens per second", 1000/t.best["ours 1"], 0),
	}
}
