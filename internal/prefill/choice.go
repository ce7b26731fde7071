// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"math/rand/v2"
	"sync"

	"afterimage/internal/batch"
	"afterimage/internal/engine"
	"afterimage/internal/openai"
)

// choice is one answer to a request. Its next runs on the scheduler's goroutine, the rest on that of the
// answer once the choice has ended.
type choice struct {
	a       *answer
	handle  *batch.Handle
	sampler *engine.Sampler
	text    *openai.TextAssembler
	limit   int // tokens
	tokens  int
	end     openai.End
}

// newChoices makes what picks tokens.
func (a *answer) newChoices() error {
	c := a.chat
	seed := rand.Uint64()
	if c.Seed != nil {
		seed = uint64(*c.Seed)
	}
	limit := a.p.spec.Context - a.usage.PromptTokens
	if c.MaxTokens > 0 {
		limit = min(limit, c.MaxTokens)
	}
	sampler, err := engine.NewSampler(engine.Sampling{Temperature: c.Temperature, TopP: c.TopP, Seed: seed})
	if err != nil {
		return openai.BadRequest("temperature", "%v", err)
	}
	a.choices = append(a.choices, &choice{a: a, sampler: sampler, text: openai.NewTextAssembler(c.Stop), limit: limit})
	return nil
}

// event is what a token adds to an answer.
type event struct {
	choice *choice
	text   string
	last   bool
}

// next picks a token and hands on the text that it makes certain.
func (c *choice) next(logits []float32) (tok int32, more bool, err error) {
	tok, err = c.sampler.Pick(logits)
	if err != nil {
		return 0, false, err
	}
	c.tokens++
	e := event{choice: c}
	e.text, e.last = c.add(tok)
	c.a.out.put(e)
	return tok, !e.last, nil
}

// add returns the text that a token makes certain, and whether the answer ends with it.
func (c *choice) add(tok int32) (text string, last bool) {
	if c.a.p.cfg.Engine.EndOfGeneration(tok) {
		c.end.Reason = openai.FinishStop
		return c.text.Flush(), true
	}
	text, stopped := c.text.Add(c.a.p.cfg.Engine.Piece(tok))
	switch {
	case stopped:
		c.end = openai.End{Reason: openai.FinishStop, Stop: c.text.Stop()}
		return text, true
	case c.tokens < c.limit:
		return text, false
	}
	text += c.text.Flush()
	c.end = openai.End{Reason: openai.FinishLength}
	if s := c.text.Stop(); s != "" { // what was held back completed it
		c.end = openai.End{Reason: openai.FinishStop, Stop: s}
	}
	return text, true
}

// outbox carries events from the scheduler, which never waits, to the client's writer. The length of the
// context bounds it.
type outbox struct {
	ready chan struct{} // holds one when there are events

	mu     sync.Mutex // guards events
	events []event
}

func (o *outbox) put(e event) {
	o.mu.Lock()
	o.events = append(o.events, e)
	o.mu.Unlock()
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

func (o *outbox) take() []event {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.events
	o.events = nil
	return out
}
