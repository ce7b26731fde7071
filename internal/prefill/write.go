// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// write passes tokens to the client as they come, or keeps them for an answer in one piece, until all
// choices have ended.
func (a *answer) write(ctx context.Context, w http.ResponseWriter) error {
	head := openai.Head{ID: a.id, Created: time.Now().Unix(), Model: a.p.spec.Model, Fingerprint: "afterimage-" + a.p.cfg.Version, Text: a.text}
	n := len(a.choices)
	var out sink = &wholeAnswer{w: w, done: openai.Completion{Head: head, Choices: make([]openai.Choice, n)}, text: make([]strings.Builder, n)}
	if a.opts.Stream {
		out = &streamAnswer{a: a, w: w, head: head}
	}
	for left := n; ; {
		select {
		case <-a.out.ready:
		case err := <-a.failed:
			return a.fault(err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for _, e := range a.out.take() {
			if err := a.begin(w, e.choice); err != nil {
				return err
			}
			a.count()
			if e.end != nil {
				left--
				a.reason = e.end.Reason
			}
			if err := out.add(e, left == 0, a.usage); err != nil || left == 0 {
				return err
			}
		}
	}
}

// begin follows the first token after a prompt: it is computed, so that its other choices can begin where it ends.
func (a *answer) begin(w http.ResponseWriter, first *choice) error {
	if first.at > 0 || first.begun {
		return nil
	}
	first.begun = true
	if a.entry.adopted == nil { // else both were counted where the prompt was computed
		a.usage.CachedTokens += first.handle.Cached()
		a.p.metrics.prompt.Add(float64(first.prompt.length))
	}
	if a.usage.CompletionTokens == 0 {
		a.first(w)
	}
	for _, c := range a.choices[first.index+1:][:a.opts.N-1] {
		if err := a.submit(c); err != nil {
			return err
		}
	}
	return nil
}

// first follows the first token of all: every embedding is there.
func (a *answer) first(w http.ResponseWriter) {
	a.p.metrics.firstToken.Observe(time.Since(a.start).Seconds())
	if !a.opts.Stream { // else the gateway sees it
		w.Header().Set(control.HeaderFirstToken, strconv.FormatFloat(ms(time.Since(a.start)), 'f', 3, 64))
	}
	if len(a.came) > 0 {
		came, _ := json.Marshal(a.came) // of plain fields
		w.Header().Set(control.HeaderItems, string(came))
	}
}

// count notes a token.
func (a *answer) count() {
	if st := a.entry.adopted; st != nil && st.buf != nil && a.restored() {
		st.cancel()
	}
	a.usage.CompletionTokens++
	a.p.metrics.generated.Inc()
}

// sink writes an answer.
type sink interface {
	// add takes what a token adds; usage counts it. With last, all choices have ended.
	add(e event, last bool, usage openai.Usage) error
}

// wholeAnswer is sent in one piece.
type wholeAnswer struct {
	w    http.ResponseWriter
	done openai.Completion
	text []strings.Builder // by choice
}

func (s *wholeAnswer) add(e event, last bool, usage openai.Usage) error {
	c := &s.done.Choices[e.choice.index]
	s.text[e.choice.index].WriteString(e.text)
	c.Logprobs = append(c.Logprobs, e.logprobs...)
	if e.end != nil {
		c.End, c.Content = *e.end, s.text[e.choice.index].String()
	}
	if last {
		s.done.Usage = usage
		s.done.Write(s.w)
	}
	return nil
}

// streamAnswer is sent as it comes. Its header goes out with the first token.
type streamAnswer struct {
	a    *answer
	w    http.ResponseWriter
	head openai.Head
}

func (s *streamAnswer) add(e event, last bool, usage openai.Usage) error {
	a := s.a
	if a.stream == nil {
		a.stream = openai.NewChunkWriter(s.w, s.head, a.opts.IncludeUsage, a.p.cfg.WriteTimeout)
		if err := a.stream.Start(len(a.choices)); err != nil {
			return gone(err)
		}
	}
	switch i := e.choice.index; {
	case last:
		return gone(a.stream.Finish(i, e.text, e.logprobs, *e.end, usage))
	case e.end != nil:
		return gone(a.stream.End(i, e.text, e.logprobs, *e.end))
	default:
		return gone(a.stream.Text(i, e.text, e.logprobs))
	}
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
