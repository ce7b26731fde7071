// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/transport"
)

// prepared is a request between its two calls: checked, with memory granted for its items.
type prepared struct {
	items   []control.PrepareItem
	uses    []int // item at each media position
	tickets []transport.Ticket
	expire  *time.Timer // nil while it is in no book
}

// cancel gives every grant back.
func (p *prepared) cancel() {
	if p.expire != nil {
		p.expire.Stop()
	}
	for _, t := range p.tickets {
		t.Cancel()
	}
}

// servePrepare checks a request and grants memory for its embeddings.
func (p *Prefill) servePrepare(w http.ResponseWriter, r *http.Request) {
	var req control.PrepareRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, p.cfg.MaxBodyBytes)).Decode(&req); err != nil {
		openai.WriteError(w, bodyError("prepare body", err))
		return
	}
	length, err := p.check(&req)
	if err != nil {
		openai.WriteError(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.cfg.GrantTimeout)
	defer cancel()
	tickets, err := p.grant(ctx, &req)
	if err != nil {
		openai.WriteError(w, err)
		return
	}
	entry := &prepared{items: req.Items, uses: req.Uses, tickets: tickets}
	if err := p.book.add(req.Request, entry, p.cfg.PrepareTTL); err != nil {
		entry.cancel()
		openai.WriteError(w, err)
		return
	}
	if r.Context().Err() != nil { // the gateway is gone, and with it whoever would use the grants
		p.drop(req.Request)
		return
	}
	resp := control.PrepareResponse{PromptTokens: length}
	for _, t := range tickets {
		g := t.Grant()
		resp.Items = append(resp.Items, control.PreparedItem{State: control.Need, Grant: &g})
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(resp)
}

// check refuses, before any work, what this worker cannot serve. It returns the prompt's length.
func (p *Prefill) check(req *control.PrepareRequest) (int, error) {
	switch {
	case req.Request == "" || len(req.Request) > 256:
		return 0, openai.BadRequest("request", "request must name the attempt in 1 to 256 bytes, got %d", len(req.Request))
	case req.Engine != p.spec.Engine:
		return 0, conflict("the Encoders run engine %q, this worker runs %q: rows of one are not rows of the other",
			req.Engine, p.spec.Engine)
	}
	total := int64(0)
	for i, it := range req.Items {
		c := it.Contract
		if c.Cols != p.spec.Cols || c.DType != p.spec.DType {
			return 0, conflict("item %d has rows of %d x %v, this model takes %d x %v", i, c.Cols, c.DType, p.spec.Cols, p.spec.DType)
		}
		// Numbers of any size may come; none may overflow.
		if width := p.spec.Cols * p.spec.DType.Bytes(); c.Rows < 1 || it.Bytes < 0 || c.Rows > it.Bytes/width {
			return 0, openai.BadRequest("items", "item %d: %d rows in %d bytes", i, c.Rows, it.Bytes)
		}
		if it.Tokens < c.Rows || it.Tokens > math.MaxInt32 {
			return 0, openai.BadRequest("items", "item %d: %d rows in %d tokens", i, c.Rows, it.Tokens)
		}
		total += min(int64(it.Bytes), math.MaxInt64-total)
	}
	if total > p.cfg.PoolBytes {
		return 0, openai.BadRequest("image", "the images of this request need %d bytes of embeddings, this worker holds %d; send fewer or smaller images",
			total, p.cfg.PoolBytes)
	}
	chat, err := openai.ParseChat(req.Chat)
	if err != nil {
		return 0, err
	}
	_, n, err := p.plan(chat, req.Items, req.Uses)
	return n, err
}

func conflict(format string, args ...any) error {
	return &openai.Error{Status: http.StatusUnprocessableEntity, Type: "ConflictError", Message: fmt.Sprintf(format, args...)}
}

// grant reserves memory for all items or none.
func (p *Prefill) grant(ctx context.Context, req *control.PrepareRequest) ([]transport.Ticket, error) {
	if len(req.Items) == 0 {
		return nil, nil
	}
	wants := make([]transport.Want, len(req.Items))
	for i, it := range req.Items {
		wants[i] = transport.Want{Key: it.Key, Contract: it.Contract, Bytes: it.Bytes, Protocol: p.cfg.Protocol}
	}
	tickets, err := p.cfg.Receiver.Grant(ctx, wants)
	switch {
	case errors.Is(err, arena.ErrTooLarge):
		return nil, openai.BadRequest("image", "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, openai.Unavailable(retryAfter, "no memory for the images of this request within %v", p.cfg.GrantTimeout)
	case err != nil:
		return nil, openai.Unavailable(retryAfter, "%v", err)
	}
	return tickets, nil
}

// serveRelease drops a prepared request that will not be posted.
func (p *Prefill) serveRelease(w http.ResponseWriter, r *http.Request) {
	p.drop(r.PathValue("request"))
	w.WriteHeader(http.StatusNoContent)
}

func (p *Prefill) drop(name string) { p.book.release(name, p.cfg.PrepareTTL) }

// bodyError says why a body could not be read: a 413 past the limit, else a 400.
func bodyError(what string, err error) error {
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return openai.TooLarge(big.Limit)
	}
	return openai.BadRequest("", "%s: %v", what, err)
}
