// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"afterimage/internal/batch"
	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// write passes tokens to the client as they come, or keeps them for an answer in one piece.
func (a *answer) write(ctx context.Context, w http.ResponseWriter, r batch.Request) error {
	head := openai.Head{ID: a.id, Created: time.Now().Unix(), Model: a.p.spec.Model, Fingerprint: "afterimage-" + a.p.cfg.Version}
	var sink sink = &wholeAnswer{head: head}
	if a.chat.Stream {
		sink = &streamAnswer{a: a, head: head}
	}
	c := a.choices[0]
	for {
		select {
		case <-a.out.ready:
		case <-c.handle.Done():
			if err := c.handle.Err(); err != nil {
				return a.fault(err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for _, e := range a.out.take() {
			a.count(w)
			if err := sink.add(w, e, a.usage); err != nil || e.last {
				return err
			}
		}
	}
}

// count notes a token. With the first one the header says how embeddings came.
func (a *answer) count(w http.ResponseWriter) {
	if a.usage.CompletionTokens == 0 {
		a.p.metrics.prompt.Add(float64(a.usage.PromptTokens))
		a.p.metrics.firstToken.Observe(time.Since(a.start).Seconds())
		if len(a.came) > 0 {
			came, _ := json.Marshal(a.came) // of plain fields
			w.Header().Set(control.HeaderItems, string(came))
		}
	}
	if !a.let && a.computed() {
		a.let = true
		a.release()
	}
	a.usage.CompletionTokens++
	a.p.metrics.generated.Inc()
}

// sink writes an answer.
type sink interface {
	// add takes one token's text; usage counts it.
	add(w http.ResponseWriter, e event, usage openai.Usage) error
}

// wholeAnswer is sent in one piece.
type wholeAnswer struct {
	head openai.Head
	text strings.Builder
}

func (s *wholeAnswer) add(w http.ResponseWriter, e event, usage openai.Usage) error {
	s.text.WriteString(e.text)
	if e.last {
		done := openai.Completion{Head: s.head, Content: s.text.String(), End: e.choice.end, Usage: usage}
		done.Write(w)
	}
	return nil
}

// streamAnswer is sent as it comes. Its header goes out with the first token.
type streamAnswer struct {
	a    *answer
	head openai.Head
}

func (s *streamAnswer) add(w http.ResponseWriter, e event, usage openai.Usage) error {
	a := s.a
	if a.stream == nil {
		a.stream = openai.NewChunkWriter(w, s.head, a.chat.IncludeUsage, a.p.cfg.WriteTimeout)
		if err := a.stream.Start(); err != nil {
			return gone(err)
		}
	}
	if e.last {
		return gone(a.stream.Finish(e.text, e.choice.end, usage))
	}
	return gone(a.stream.Text(e.text))
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
