// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"afterimage/internal/batch"
	"afterimage/internal/engine"
	"afterimage/internal/openai"
)

// choice is one answer to a request. Its next runs on the scheduler's goroutine.
type choice struct {
	a       *answer
	index   int // among all choices
	prompt  promptOf
	at      int // among those of its prompt
	limit   int // of tokens
	begun   bool
	handOff func(batch.Computed) error // in the place of all below: the prompt moves to another worker
	lead    string                     // what stands before the first text
	handle  *batch.Handle              // nil until it is submitted
	sampler *engine.Sampler
	text    *openai.TextAssembler
	tokens  int
}

// event is what a token adds to a choice.
type event struct {
	choice   *choice
	text     string
	logprobs []openai.TokenLogprob
	end      *openai.End // set with the last one
}

// next picks a token and hands on the text that it makes certain.
func (c *choice) next(logits []float32) (tok int32, more bool, err error) {
	tok, err = c.sampler.Pick(logits)
	if err != nil {
		return 0, false, err
	}
	c.tokens++
	e := event{choice: c}
	if c.a.opts.Logprobs {
		e.logprobs = c.logprobs(logits, tok)
	}
	e.text, e.end = c.add(tok)
	e.text, c.lead = c.lead+e.text, ""
	c.a.out.put(e)
	return tok, e.end == nil, nil
}

// add returns the text that a token makes certain, and how the answer ends if it ends with it.
func (c *choice) add(tok int32) (string, *openai.End) {
	e := c.a.p.cfg.Engine
	// An answer in a form ends when the form is complete: there is nothing that could follow.
	if e.EndOfGeneration(tok) && (!c.a.opts.IgnoreEOS || c.a.opts.Format.JSON) {
		return c.text.Flush(), &openai.End{Reason: openai.FinishStop}
	}
	text, stopped := c.text.Add(e.Piece(tok))
	if stopped {
		return text, &openai.End{Reason: openai.FinishStop, Stop: c.text.Stop()}
	}
	if c.tokens < c.limit {
		return text, nil
	}
	text += c.text.Flush()
	if s := c.text.Stop(); s != "" { // what was held back completed it
		return text, &openai.End{Reason: openai.FinishStop, Stop: s}
	}
	return text, &openai.End{Reason: openai.FinishLength}
}

// logprobs describes a token for the client.
func (c *choice) logprobs(logits []float32, tok int32) []openai.TokenLogprob {
	own, top := engine.Logprobs(logits, tok, c.a.opts.TopLogprobs)
	out := openai.TokenLogprob{Logprob: openai.Logprob{Token: c.a.p.cfg.Engine.Piece(tok), Logprob: own}}
	for _, t := range top {
		out.Top = append(out.Top, openai.Logprob{Token: c.a.p.cfg.Engine.Piece(t.Token), Logprob: t.Logprob})
	}
	return []openai.TokenLogprob{out}
}
