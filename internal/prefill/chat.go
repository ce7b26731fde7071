// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/openai"
)

// missingError says which items a request lacks. It becomes a 409 while nothing is written yet.
type missingError struct {
	items []int
	cause error
}

func (e *missingError) Error() string {
	return fmt.Sprintf("items %v are missing: %v", e.items, e.cause)
}
func (e *missingError) Unwrap() error { return e.cause }

// serveChat answers one conversation.
func (p *Prefill) serveChat(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, p.cfg.MaxBodyBytes))
	if err != nil {
		openai.WriteError(w, bodyError("body", err))
		return
	}
	entry := p.book.take(r.Header.Get(control.HeaderPrepare))
	if entry == nil {
		entry = &prepared{}
	} else {
		defer entry.cancel()
	}
	chat, err := openai.ParseChat(body)
	if err != nil {
		openai.WriteError(w, err)
		return
	}
	if n := chat.Items(); n > 0 && len(entry.items) == 0 {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		p.finish(w, nil, &missingError{items: all, cause: errors.New("nothing is prepared under this name")})
		return
	}
	a := &answer{p: p, chat: chat, entry: entry, start: start, id: openai.CompletionID(r.Header.Get(control.HeaderRequestID))}
	p.finish(w, a, a.run(r.Context(), w))
}

// finish counts a request's outcome and reports an error in the shape that still fits.
func (p *Prefill) finish(w http.ResponseWriter, a *answer, err error) {
	var missing *missingError
	switch {
	case err == nil:
		p.metrics.requests.WithLabelValues(a.end.Reason).Inc()
		return
	case errors.Is(err, context.Canceled):
		p.metrics.requests.WithLabelValues("cancelled").Inc()
	case errors.As(err, &missing):
		p.metrics.requests.WithLabelValues("missing").Inc()
		p.metrics.missing.Add(float64(len(missing.items)))
	default:
		p.metrics.requests.WithLabelValues("error").Inc()
		if openai.AsError(err).Status >= 500 {
			p.cfg.Logger.Warn("request failed", "err", err)
		}
	}
	if a != nil && a.stream != nil {
		a.stream.Fail(err)
		return
	}
	if missing != nil {
		p.cfg.Logger.Info("items missing", "items", missing.items, "cause", missing.cause)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		json.NewEncoder(w).Encode(control.Missing{Missing: missing.items})
		return
	}
	openai.WriteError(w, err)
}

// answer is one request in work.
type answer struct {
	p      *Prefill
	chat   *openai.Chat
	entry  *prepared
	id     string
	start  time.Time
	stream *openai.ChunkWriter // set once the first byte is about to go out
	held   []held              // embeddings that have arrived and are still needed, by item
	left   []int               // uses of each item that are still to come
	came   []control.Arrival
	usage  openai.Usage
	end    openai.End
}

// run takes the request from its prompt to its last byte.
func (a *answer) run(ctx context.Context, w http.ResponseWriter) error {
	pr, n, err := a.p.plan(a.chat, a.entry.items, a.entry.uses)
	if err != nil {
		return err
	}
	seq, err := a.sequence(ctx)
	if err != nil {
		return err
	}
	defer func() { seq.Close(); a.p.running.Add(-1) }()
	if err := a.prefill(ctx, seq, pr); err != nil {
		return err
	}
	a.usage.PromptTokens = n
	a.p.metrics.prompt.Add(float64(n))
	a.p.metrics.firstToken.Observe(time.Since(a.start).Seconds())
	if len(a.came) > 0 {
		came, _ := json.Marshal(a.came) // of plain fields
		w.Header().Set(control.HeaderItems, string(came))
	}
	return a.decode(ctx, w, seq)
}

// sequence waits for a place in the model's memory.
func (a *answer) sequence(ctx context.Context) (engine.Sequence, error) {
	p := a.p
	if p.waiting.Add(1) > int64(p.cfg.MaxWaiting) {
		p.waiting.Add(-1)
		return nil, &openai.Error{Status: http.StatusTooManyRequests, Type: openai.TypeRateLimit, RetryAfter: retryAfter,
			Message: fmt.Sprintf("more than %d requests wait for this worker", p.cfg.MaxWaiting)}
	}
	defer p.waiting.Add(-1)
	seq, err := p.cfg.Engine.NewSequence(ctx)
	if err == nil {
		p.running.Add(1)
	}
	return seq, err
}

// prefill feeds the prompt, waiting for each embedding where the prompt needs it.
func (a *answer) prefill(ctx context.Context, seq engine.Sequence, pr *prompt) error {
	a.held, a.left = make([]held, len(a.entry.items)), make([]int, len(a.entry.items))
	for _, use := range a.entry.uses {
		a.left[use]++
	}
	defer a.release()
	f := feeder{seq: seq, protocol: a.p.cfg.Protocol}
	for _, s := range pr.segments {
		if s.item < 0 {
			f.toks = append(f.toks, s.tokens...)
			continue
		}
		if err := a.feed(ctx, &f, a.entry.uses[s.item]); err != nil {
			return err
		}
	}
	if len(f.toks) == 0 {
		return openai.BadRequest("messages", "the conversation ends with an image and the model's chat template adds nothing after it")
	}
	return seq.PrefillTokens(ctx, f.toks, true)
}

// feed gives the model item i where the prompt shows it, and lets go of it after its last use.
func (a *answer) feed(ctx context.Context, f *feeder, i int) error {
	if !a.here(i) { // work while the Encoder does
		if err := f.flush(ctx); err != nil {
			return err
		}
	}
	h, err := a.item(ctx, i)
	if err != nil {
		return err
	}
	err = f.item(ctx, h)
	if errors.Is(err, engine.ErrBadRows) { // the engine looked before native code did
		a.p.cfg.Residents.remove(a.entry.items[i].Key)
		return &missingError{items: []int{i}, cause: err}
	}
	if a.left[i]--; a.left[i] == 0 {
		h.buf.Release()
		a.held[i] = held{}
		a.p.cfg.Residents.settle()
	}
	return err
}

func (a *answer) here(i int) bool { return a.held[i].buf != nil }

// item waits for embedding i. A second use gets the one that is held.
func (a *answer) item(ctx context.Context, i int) (held, error) {
	if a.here(i) {
		return a.held[i], nil
	}
	start := time.Now()
	wait, cancel := context.WithTimeout(ctx, a.p.cfg.ItemTimeout)
	defer cancel()
	h, road, err := a.entry.supplies[i].wait(wait)
	waited := time.Since(start)
	a.p.metrics.itemWait.Observe(waited.Seconds())
	if err == nil {
		err = a.p.admit(a.entry.items[i].Key, &h)
	}
	if err != nil {
		if ctx.Err() != nil {
			return held{}, context.Cause(ctx)
		}
		return held{}, &missingError{items: []int{i}, cause: err}
	}
	a.p.metrics.items.WithLabelValues(string(road)).Inc()
	a.came = append(a.came, control.Arrival{Index: i, Road: road, Bytes: h.buf.Len(), WaitMS: ms(waited)})
	a.held[i] = h
	return h, nil
}

// admit sums and scans a payload that nobody has, and keeps the embedding for the requests to come. It
// releases what it refuses.
func (p *Prefill) admit(k embedding.Key, h *held) error {
	if !h.checked {
		if err := p.cfg.Protocol.CheckPayload(h.buf.Bytes(), h.meta.DType); err != nil {
			h.buf.Release()
			p.distrust(k, err)
			return err
		}
		h.checked = true
	}
	p.cfg.Residents.keep(k, *h)
	return nil
}

func (a *answer) release() {
	for _, h := range a.held {
		if h.buf != nil {
			h.buf.Release()
		}
	}
	a.held = nil
}
