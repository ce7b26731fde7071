// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/transport"
)

// prepared is a request between its two calls: checked, with something to supply each of its items.
type prepared struct {
	items    []control.PrepareItem
	uses     []int       // item at each media position
	supplies []supply    // by item
	kept     *Residents  // some of which are pinned
	adopted  *adopted    // in the place of all that, at a decode worker
	expire   *time.Timer // nil while it is in no book
}

// cancel gives every grant, pin and read back.
func (p *prepared) cancel() {
	if p.expire != nil {
		p.expire.Stop()
	}
	cancelAll(p.supplies)
	p.adopted.cancel()
	p.kept.settle()
}

// servePrepare checks a request and grants memory for its embeddings.
func (p *Prefill) servePrepare(w http.ResponseWriter, r *http.Request) {
	var req control.PrepareRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, p.cfg.MaxBodyBytes)).Decode(&req); err != nil {
		openai.WriteError(w, bodyError("prepare body", err))
		return
	}
	entry, resp, err := p.prepare(r.Context(), &req)
	if err != nil {
		openai.WriteError(w, err)
		return
	}
	if err := p.book.add(req.Request, entry, p.cfg.PrepareTTL); err != nil {
		entry.cancel()
		openai.WriteError(w, err)
		return
	}
	if r.Context().Err() != nil { // the gateway is gone, and with it whoever would use the grants
		p.drop(req.Request)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(resp)
}

// prepare checks a request and finds out how its embeddings come.
func (p *Prefill) prepare(ctx context.Context, req *control.PrepareRequest) (*prepared, *control.PrepareResponse, error) {
	chat, err := p.check(req)
	if err != nil {
		return nil, nil, err
	}
	sized := !slices.ContainsFunc(req.Items, func(it control.PrepareItem) bool { return !it.Sized() })
	tokens := 0
	if sized { // what cannot be served is refused before anything is done for it
		if _, tokens, err = p.plan(chat, req.Items, req.Uses); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.GrantTimeout)
	defer cancel()
	supplies, resp, err := p.supply(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	entry := &prepared{items: req.Items, uses: req.Uses, supplies: supplies, kept: p.cfg.Residents}
	for i := range supplies {
		if !req.Items[i].Sized() { // then the object is here, and says it
			req.Items[i].Tokens = supplies[i].found.meta.Layout.KVCells()
		}
		resp.Items = append(resp.Items, supplies[i].answer())
	}
	if !sized {
		if _, tokens, err = p.plan(chat, req.Items, req.Uses); err != nil {
			entry.cancel()
			return nil, nil, err
		}
	}
	resp.PromptTokens = tokens
	return entry, &resp, nil
}

// check refuses, before any work, what makes no sense here. It returns the conversation.
func (p *Prefill) check(req *control.PrepareRequest) (*openai.Chat, error) {
	switch {
	case req.Request == "" || len(req.Request) > 256:
		return nil, openai.BadRequest("request", "request must name the attempt in 1 to 256 bytes, got %d", len(req.Request))
	case req.Engine != p.spec.Engine:
		return nil, conflict("the Encoders run engine %q, this worker runs %q: rows of one are not rows of the other",
			req.Engine, p.spec.Engine)
	}
	total := int64(0)
	for i, it := range req.Items {
		if it.Identifier == "" || !strings.HasSuffix(string(it.Key), "@id:"+string(it.Identifier)) {
			return nil, openai.BadRequest("items", "item %d: key %.300q is not that of identifier %.300q", i, it.Key, it.Identifier)
		}
		c := it.Contract
		if c.Cols != p.spec.Cols || c.DType != p.spec.DType {
			return nil, conflict("item %d has rows of %d x %v, this model takes %d x %v", i, c.Cols, c.DType, p.spec.Cols, p.spec.DType)
		}
		if !it.Sized() {
			continue
		}
		// Numbers of any size may come; none may overflow.
		if width := p.spec.Cols * p.spec.DType.Bytes(); c.Rows < 1 || it.Bytes < 0 || c.Rows > it.Bytes/width {
			return nil, openai.BadRequest("items", "item %d: %d rows in %d bytes", i, c.Rows, it.Bytes)
		}
		if it.Tokens < c.Rows || it.Tokens > math.MaxInt32 {
			return nil, openai.BadRequest("items", "item %d: %d rows in %d tokens", i, c.Rows, it.Tokens)
		}
		total += min(int64(it.Bytes), math.MaxInt64-total)
	}
	if total > p.cfg.PoolBytes {
		return nil, openai.BadRequest("image", "the images of this request need %d bytes of embeddings, this worker holds %d; send fewer or smaller images",
			total, p.cfg.PoolBytes)
	}
	return openai.ParseChat(req.Chat)
}

func conflict(format string, args ...any) error {
	return &openai.Error{Status: http.StatusUnprocessableEntity, Type: "ConflictError", Message: fmt.Sprintf(format, args...)}
}

// grant reserves memory for the items in need, all or none.
func (p *Prefill) grant(ctx context.Context, turn transport.Turn, items []control.PrepareItem, need []int, out []supply) error {
	if len(need) == 0 {
		return nil
	}
	wants := make([]transport.Want, len(need))
	for n, i := range need {
		it := &items[i]
		if !it.Sized() {
			return errNoSize(i)
		}
		wants[n] = transport.Want{Key: it.Key, Contract: it.Contract, Bytes: it.Bytes, Protocol: p.cfg.Protocol, Fresh: it.Force}
	}
	tickets, err := turn.Grant(ctx, wants)
	if err != nil {
		return p.noMemory(err)
	}
	for n, i := range need {
		out[i].ticket = tickets[n]
	}
	return nil
}

// noMemory words why there is no grant.
func (p *Prefill) noMemory(err error) error {
	switch {
	case errors.Is(err, arena.ErrTooLarge):
		return openai.BadRequest("image", "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return openai.Unavailable(retryAfter, "no memory for the images of this request within %v", p.cfg.GrantTimeout)
	}
	return openai.Unavailable(retryAfter, "%v", err)
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
