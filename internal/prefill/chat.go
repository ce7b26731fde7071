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
	"afterimage/internal/openai"
)

// missingError says which items a request lacks. It becomes a 409 while nothing is written yet.
type missingError struct {
	items []int
	wrong []int // those of items that came, and are not what their names say
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
	if p.cfg.Decode {
		p.answerAdopted(w, r, entry, chat, start)
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
	pr, n, err := p.plan(chat, entry.items, entry.uses)
	if err != nil {
		p.finish(w, nil, err)
		return
	}
	a := newAnswer(p, &chat.Options, []promptOf{{pr, n}}, entry, start, openai.CompletionID(r.Header.Get(control.HeaderRequestID)))
	a.scope = scopeOf(r, &chat.Options)
	p.finish(w, a, a.serve(w, r))
}

// serve answers, or has another worker answer where the gateway has one.
func (a *answer) serve(w http.ResponseWriter, r *http.Request) error {
	if a.movable(r) {
		return a.handOff(r.Context(), w, r.Header.Get(control.HeaderPrepare))
	}
	return a.run(r.Context(), w)
}

// scopeOf names those with whom a request's prompts may share their beginnings. Behind the hex digits of the
// gateway's header no client's salt can be taken for the scope of another tenant.
func scopeOf(r *http.Request, opts *openai.Options) string {
	return r.Header.Get(control.HeaderScope) + "/" + opts.CacheSalt
}

// finish counts a request's outcome and reports an error in the shape that still fits.
func (p *Prefill) finish(w http.ResponseWriter, a *answer, err error) {
	var missing *missingError
	switch {
	case err == nil:
		p.metrics.requests.WithLabelValues(a.reason).Inc()
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
		json.NewEncoder(w).Encode(control.Missing{Missing: missing.items, Wrong: missing.wrong})
		return
	}
	openai.WriteError(w, err)
}

// item waits for embedding i. The caller owns one reference.
func (a *answer) item(ctx context.Context, i int) (held, error) {
	start := time.Now()
	wait, cancel := context.WithTimeout(ctx, a.p.cfg.ItemTimeout)
	defer cancel()
	h, road, err := a.entry.supplies[i].wait(wait)
	waited := time.Since(start)
	a.p.metrics.itemWait.Observe(waited.Seconds())
	switch {
	case err != nil && ctx.Err() != nil:
		return held{}, context.Cause(ctx)
	case err != nil:
		return held{}, &missingError{items: []int{i}, cause: err}
	}
	if err := a.p.admit(&a.entry.items[i], &h); err != nil {
		return held{}, &missingError{items: []int{i}, wrong: []int{i}, cause: err}
	}
	a.p.metrics.items.WithLabelValues(string(road)).Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.came = append(a.came, control.Arrival{Index: i, Road: road, Bytes: h.buf.Len(), WaitMS: ms(waited)})
	return h, nil
}

// admit holds an embedding against what the prompt was planned with, looks at what of it nobody has, and keeps it for
// the requests to come. It releases what it refuses.
func (p *Prefill) admit(it *control.PrepareItem, h *held) error {
	if err := p.suits(it, h); err != nil {
		h.buf.Release()
		p.distrust(it.Key, err)
		return err
	}
	p.cfg.Residents.keep(it.Key, *h)
	return nil
}

// suits says what is wrong with an embedding. Who sent it has checked rows, width and type; what stands round the rows
// is known here.
func (p *Prefill) suits(it *control.PrepareItem, h *held) error {
	if !fits(it, p.contract(it), h.meta) {
		return fmt.Errorf("%w: %d rows in a layout of %d cells, planned for %d", embedding.ErrContract, h.meta.Rows, h.meta.Layout.KVCells(), it.Tokens)
	}
	return h.check(p.cfg.Protocol)
}
