// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unsafe"

	"afterimage/internal/arena"
	"afterimage/internal/batch"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/openai"
	"afterimage/internal/transport"
)

// adopted is a computed prompt that comes from a P/D.
type adopted struct {
	key    embedding.Key
	about  control.HandOff
	ticket transport.Ticket
	buf    *arena.Buf // once it is here, until no choice needs it
	state  *batch.State
}

// cancel gives memory back. Nobody may use the state any more.
func (a *adopted) cancel() {
	if a == nil {
		return
	}
	a.ticket.Cancel()
	if a.buf != nil {
		a.buf.Release()
		a.buf = nil
	}
}

// serveAdopt makes room for a state.
func (p *Prefill) serveAdopt(w http.ResponseWriter, r *http.Request) {
	var req control.AdoptRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody)).Decode(&req); err != nil {
		openai.WriteError(w, bodyError("adopt body", err))
		return
	}
	start := time.Now()
	entry, err := p.adopt(r.Context(), &req)
	if err == nil {
		if err = p.book.add(req.Request, &prepared{adopted: entry}, p.cfg.PrepareTTL); err != nil {
			entry.cancel()
		}
	}
	if err != nil {
		openai.WriteError(w, err)
		return
	}
	if r.Context().Err() != nil { // the gateway is gone, and with it whoever would use the grant
		p.drop(req.Request)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(control.AdoptResponse{Grant: entry.ticket.Grant(), GrantMS: ms(time.Since(start))})
}

// adopt checks what is said of a state and has memory granted for it, in order of arrival.
func (p *Prefill) adopt(ctx context.Context, req *control.AdoptRequest) (*adopted, error) {
	h := req.HandOff
	most := p.cfg.PoolBytes
	switch {
	case req.Request == "" || len(req.Request) > 256:
		return nil, openai.BadRequest("request", "request must name the attempt in 1 to 256 bytes, got %d", len(req.Request))
	case req.Engine != p.spec.Engine:
		return nil, conflict("the P/D runs engine %q, this worker runs %q: neither can go on from a state of the other", req.Engine, p.spec.Engine)
	case h.Logits != p.spec.Vocab || h.State < 1 || int64(h.State) > most || h.Rows != stateRows(4*h.Logits+h.State) || h.Bytes != stateBytes(h.Rows):
		return nil, openai.BadRequest("handoff", "a state of %d bytes and %d logits in %d rows and %d bytes", h.State, h.Logits, h.Rows, h.Bytes)
	case h.Cells < 1 || h.Cells >= p.spec.Context || h.Positions < 1 || h.Positions > h.Cells || h.PromptTokens < 1 || h.PromptTokens >= p.spec.Context:
		return nil, openai.BadRequest("handoff", "a state of %d cells and %d positions, in a context of %d", h.Cells, h.Positions, p.spec.Context)
	case int64(h.Bytes) > most:
		return nil, openai.BadRequest("handoff", "a state of %d bytes, and this worker has room for %d", h.Bytes, most)
	}
	out := &adopted{key: stateKey(req.Request), about: h}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.GrantTimeout)
	defer cancel()
	tickets, err := p.cfg.Receiver.Grant(ctx, []transport.Want{{
		Key: out.key, Contract: stateContract(h.Rows), Protocol: stateProtocol, Bytes: h.Bytes, Fresh: true,
	}})
	if err != nil {
		return nil, openai.Unavailable(retryAfter, "no memory for the state of this request: %v", err)
	}
	out.ticket = tickets[0]
	return out, nil
}

// wait returns once the state is here and is what the P/D has sent.
func (a *adopted) wait(ctx context.Context) error {
	buf, _, err := a.ticket.Wait(ctx)
	if err != nil {
		return err
	}
	a.buf = buf
	// Memory on loan was not summed when it was taken, and native code is to read it.
	_, payload, err := stateProtocol.Open(buf.Bytes(), a.key, stateContract(a.about.Rows))
	if err != nil {
		return err
	}
	h := a.about
	a.state = &batch.State{
		Cells: h.Cells, Positions: h.Positions,
		Logits: unsafe.Slice((*float32)(unsafe.Pointer(&payload[0])), h.Logits), // payloads begin at multiples of 64
		Data:   payload[4*h.Logits:][:h.State],
	}
	return nil
}

// take is the first step of an answer that another worker has computed the prompt of: its state comes here.
func (a *answer) take(ctx context.Context) error {
	st := a.entry.adopted
	if st == nil {
		return nil
	}
	start := time.Now()
	wait, cancel := context.WithTimeout(ctx, a.p.cfg.ItemTimeout)
	defer cancel()
	if err := st.wait(wait); err != nil {
		a.p.metrics.adopted.WithLabelValues("failed").Inc()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("it did not come within %v", a.p.cfg.ItemTimeout)
		}
		return openai.Unavailable(retryAfter, "the state of the prompt: %v", err)
	}
	a.p.metrics.adopted.WithLabelValues(string(road(st.buf, control.RoadTCP))).Inc()
	a.p.metrics.itemWait.Observe(time.Since(start).Seconds())
	a.usage.CachedTokens = st.about.CachedTokens
	return nil
}

// restored says that no choice will look at the state again.
func (a *answer) restored() bool {
	for _, c := range a.choices {
		if c.handle == nil {
			return false
		}
		select {
		case <-c.handle.Released():
		default:
			return false
		}
	}
	return true
}

// adoptedPrompt is the prompt of a request whose state comes from elsewhere: its words count for penalties.
func (p *Prefill) adoptedPrompt(chat *openai.Chat, st *adopted) (*prompt, int, error) {
	form, err := p.checkSampling(&chat.Options)
	if err != nil {
		return nil, 0, err
	}
	pr, err := buildPrompt(p.cfg.Engine, chat)
	if err != nil {
		return nil, 0, openai.BadRequest("messages", "%v", err)
	}
	pr.form = form
	return pr, st.about.PromptTokens, p.fits(st.about.PromptTokens, &chat.Options)
}

// answerAdopted answers a conversation whose prompt was computed elsewhere.
func (p *Prefill) answerAdopted(w http.ResponseWriter, r *http.Request, entry *prepared, chat *openai.Chat, start time.Time) {
	if entry.adopted == nil {
		p.finish(w, nil, errNoState())
		return
	}
	pr, n, err := p.adoptedPrompt(chat, entry.adopted)
	if err != nil {
		p.finish(w, nil, err)
		return
	}
	a := newAnswer(p, &chat.Options, []promptOf{{pr, n}}, entry, start, openai.CompletionID(r.Header.Get(control.HeaderRequestID)))
	p.finish(w, a, a.run(r.Context(), w))
}

// errNoState: a call for an answer without a state to go on from.
func errNoState() error {
	return openai.Unavailable(retryAfter, "no state was adopted under this name")
}
