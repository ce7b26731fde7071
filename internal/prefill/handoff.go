// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
	"unsafe"

	"afterimage/internal/batch"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/openai"
)

// movable says whether the answer to r may come from a decode worker: of several prompts, each would have a
// state of its own, and so long a call is not worth it.
func (a *answer) movable(r *http.Request) bool {
	return a.p.states != nil && r.Header.Get(control.HeaderHandOff) != "" && r.Header.Get(control.HeaderPrepare) != "" && len(a.prompts) == 1
}

// handOff computes the prompt and answers with where its state is, in the place of tokens.
func (a *answer) handOff(ctx context.Context, w http.ResponseWriter, name string) error {
	s, pr := a.p.states, a.prompts[0]
	buf, err := s.reserve(ctx, pr.length)
	if err != nil {
		return err
	}
	defer buf.Abort() // nothing once it is kept
	var out control.HandOff
	c := &choice{a: a, prompt: pr, handOff: func(c batch.Computed) (err error) {
		out, err = fill(buf.Bytes(), c)
		return err
	}}
	err = a.compute(ctx, 1, func(context.Context) error { return a.submit(c) }, c.computed)
	if err != nil {
		return err
	}
	buf.Truncate(out.Bytes)
	meta := embedding.Meta{Rows: out.Rows, Cols: control.StateCols, DType: embedding.Float32, Layout: stateLayout(out.Rows)}
	if err := stateProtocol.Seal(buf.Bytes(), stateKey(name), meta); err != nil {
		return err
	}
	buf.Commit()
	if err := s.keep(name, buf); err != nil {
		return err
	}
	out.PromptTokens, out.CachedTokens = pr.length, c.handle.Cached()
	a.p.metrics.prompt.Add(float64(pr.length))
	a.first(w)
	a.reason = "handoff"
	w.Header().Set("Content-Type", control.HandOffType)
	return gone(json.NewEncoder(w).Encode(out))
}

// computed waits until the engine reads and writes nothing of a choice any more.
func (c *choice) computed(ctx context.Context) error {
	select {
	case <-c.handle.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := c.handle.Err(); err != nil {
		return c.a.fault(err)
	}
	return nil
}

// fill writes logits and state into obj, and zeros into what is left of their last row.
func fill(obj []byte, c batch.Computed) (control.HandOff, error) {
	body := obj[stateProtocol.PayloadOffset(stateLayout(1)):]
	logits := floatBytes(c.Logits)
	n, err := c.Save(body[copy(body, logits):])
	if err != nil {
		return control.HandOff{}, err
	}
	rows := stateRows(len(logits) + n)
	clear(body[len(logits)+n : rows*4*control.StateCols])
	return control.HandOff{Bytes: stateBytes(rows), Rows: rows, Logits: len(c.Logits), State: n, Cells: c.Cells, Positions: c.Positions}, nil
}

// floatBytes views f as bytes, in the order of the machine, which is little endian as objects are.
func floatBytes(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}

// serveHandOff delivers a state to the decode worker that has granted memory for it.
func (p *Prefill) serveHandOff(w http.ResponseWriter, r *http.Request) {
	var req control.HandOffRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody)).Decode(&req); err != nil {
		openai.WriteError(w, bodyError("hand-off body", err))
		return
	}
	buf := p.states.get(req.Request)
	if buf == nil {
		openai.WriteError(w, openai.Unavailable(retryAfter, "no state is kept under %.80q", req.Request))
		return
	}
	defer buf.Release()
	start := time.Now()
	err := p.states.Sender.Send(r.Context(), req.Grant, buf)
	took := time.Since(start)
	if err != nil {
		p.metrics.handedOff.WithLabelValues("failed").Inc()
		openai.WriteError(w, openai.Unavailable(retryAfter, "the state did not reach the decode worker: %v", err))
		return
	}
	p.metrics.handedOff.WithLabelValues("done").Inc()
	p.metrics.handOffBytes.Add(float64(buf.Len()))
	p.metrics.handOff.Observe(took.Seconds())
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(control.HandOffResponse{MS: ms(took)})
}

// serveDropState lets go of a state.
func (p *Prefill) serveDropState(w http.ResponseWriter, r *http.Request) {
	p.states.release(r.PathValue("request"))
	w.WriteHeader(http.StatusNoContent)
}

// maxControlBody bounds the small bodies of gateways.
const maxControlBody = 64 << 10
