// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"afterimage/internal/engine"
	"afterimage/internal/openai"
)

// decode samples until the answer ends and writes it, streamed or whole.
func (a *answer) decode(ctx context.Context, w http.ResponseWriter, seq engine.Sequence) error {
	c := a.chat
	seed := rand.Uint64()
	if c.Seed != nil {
		seed = uint64(*c.Seed)
	}
	sampler, err := engine.NewSampler(engine.Sampling{Temperature: c.Temperature, TopP: c.TopP, Seed: seed})
	if err != nil {
		return openai.BadRequest("temperature", "%v", err)
	}
	head := openai.Head{ID: a.id, Created: time.Now().Unix(), Model: a.p.spec.Model, Fingerprint: "afterimage-" + a.p.cfg.Version}
	if !c.Stream {
		var whole strings.Builder
		last, err := a.generate(ctx, seq, sampler, func(s string) error { whole.WriteString(s); return nil })
		if err != nil {
			return err
		}
		whole.WriteString(last)
		done := openai.Completion{Head: head, Content: whole.String(), End: a.end, Usage: a.usage}
		done.Write(w)
		return nil
	}
	a.stream = openai.NewChunkWriter(w, head, c.IncludeUsage, a.p.cfg.WriteTimeout)
	if err := a.stream.Start(); err != nil {
		return gone(err)
	}
	last, err := a.generate(ctx, seq, sampler, func(s string) error { return gone(a.stream.Text(s)) })
	if err != nil {
		return err
	}
	return gone(a.stream.Finish(last, a.end, a.usage))
}

// generate runs the token loop: it emits all text but the last, which it returns, and notes how the
// answer ended and how many tokens it took.
func (a *answer) generate(ctx context.Context, seq engine.Sequence, s *engine.Sampler, emit func(string) error) (string, error) {
	text := openai.NewTextAssembler(a.chat.Stop)
	limit := a.p.spec.Context - a.usage.PromptTokens
	if a.chat.MaxTokens > 0 {
		limit = min(limit, a.chat.MaxTokens)
	}
	for {
		tok, err := s.Pick(seq.Logits())
		if err != nil {
			return "", err
		}
		a.usage.CompletionTokens++
		a.p.metrics.generated.Inc()
		if a.p.cfg.Engine.EndOfGeneration(tok) {
			a.end.Reason = openai.FinishStop
			return text.Flush(), nil
		}
		out, stopped := text.Add(a.p.cfg.Engine.Piece(tok))
		if stopped {
			a.end = openai.End{Reason: openai.FinishStop, Stop: text.Stop()}
			return out, nil
		}
		if a.usage.CompletionTokens >= limit {
			return out + a.cut(text), nil
		}
		if err := emit(out); err != nil {
			return "", err
		}
		if err := seq.PrefillTokens(ctx, []int32{tok}, true); err != nil {
			return "", err
		}
	}
}

// cut ends an answer at its limit. What was held back may complete a stop string.
func (a *answer) cut(text *openai.TextAssembler) string {
	rest := text.Flush()
	a.end = openai.End{Reason: openai.FinishLength}
	if s := text.Stop(); s != "" {
		a.end = openai.End{Reason: openai.FinishStop, Stop: s}
	}
	return rest
}

// gone says that a failed write is the client's leaving.
func gone(err error) error {
	if err == nil {
		return nil
	}
	return &leftError{err}
}

// leftError: the client is not there to read.
type leftError struct{ err error }

func (e *leftError) Error() string        { return "the client stopped reading: " + e.err.Error() }
func (e *leftError) Is(target error) bool { return target == context.Canceled }
