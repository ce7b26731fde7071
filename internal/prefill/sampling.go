// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"errors"
	"math/rand/v2"

	"afterimage/internal/engine"
	"afterimage/internal/grammar"
	"afterimage/internal/openai"
)

// checkSampling refuses, before any work, options that this model cannot serve. It returns the grammar of an answer.
func (p *Prefill) checkSampling(opts *openai.Options) (string, error) {
	if err := opts.CheckVocab(p.spec.Vocab); err != nil {
		return "", err
	}
	g, err := form(opts)
	if err != nil {
		return "", err
	}
	c, err := p.constrain(g)
	if c != nil {
		c.Close()
	}
	return g, err
}

// form returns the grammar of an answer; "" for none.
func form(opts *openai.Options) (string, error) {
	switch {
	case !opts.Format.JSON:
		return "", nil
	case opts.Format.Schema == nil:
		return grammar.AnyObject, nil
	}
	g, err := grammar.FromSchema(opts.Format.Schema)
	if err != nil {
		return "", openai.BadRequest("response_format", "response_format.json_schema.schema: %v", err)
	}
	return g, nil
}

// constrain makes what holds an answer to a grammar; nil for none.
func (p *Prefill) constrain(g string) (engine.Constraint, error) {
	if g == "" {
		return nil, nil
	}
	defer p.native.begin()()
	c, err := p.cfg.Engine.Constrain(g)
	switch {
	case errors.Is(err, engine.ErrNoGrammar):
		return nil, openai.BadRequest("response_format", "response_format is not supported by this engine")
	case err != nil:
		return nil, openai.BadRequest("response_format", "response_format: %v", err)
	}
	return c, nil
}

// newChoices makes what picks the tokens of each choice of a prompt.
func (a *answer) newChoices(pr promptOf) error {
	c, seed := a.opts, rand.Uint64()
	if c.Seed != nil {
		seed = uint64(*c.Seed)
	}
	limit := a.p.spec.Context - pr.length
	if c.MaxTokens > 0 {
		limit = min(limit, c.MaxTokens)
	}
	cfg := engine.Sampling{
		Temperature: c.Temperature, TopP: c.TopP, TopK: c.TopK, MinP: c.MinP, Repetition: c.RepetitionPenalty,
		Presence: c.PresencePenalty, Frequency: c.FrequencyPenalty, Bias: c.LogitBias, Prompt: pr.words(),
	}
	for i := range c.N {
		var err error
		if cfg.Constraint, err = a.p.constrain(pr.form); err != nil {
			return err
		}
		cfg.Seed = seed + uint64(i)
		sampler, err := engine.NewSampler(cfg)
		if err != nil {
			return openai.BadRequest("temperature", "%v", err)
		}
		a.choices = append(a.choices, &choice{
			a: a, index: len(a.choices), prompt: pr, at: i, limit: limit, lead: pr.echo, sampler: sampler, text: openai.NewTextAssembler(c.Stop),
		})
	}
	return nil
}
