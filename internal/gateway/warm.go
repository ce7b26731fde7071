// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/admit"
	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/proxy"
)

// serveWarm answers POST /v1/warm: pictures go through the Encoders as those of a chat do, but to no P/D
// and for no answer, so that their embeddings are in the Store when somebody asks.
func (g *Gateway) serveWarm(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	id := proxy.RequestID(r.Header.Get(control.HeaderRequestID), proxy.RandomHex(16))
	w.Header().Set(control.HeaderRequestID, id)
	parts, err := g.warmParts(w, r)
	pass := admit.From(r.Context())
	encoders := readForced(r.Header.Get(control.HeaderEncoder))
	if err == nil {
		err = mayChoose(pass, r.Header)
	}
	if err == nil {
		err = encoders.check(g.fleet.snapshot(), len(parts))
	}
	if err != nil {
		openai.WriteError(w, openai.AsError(clientError(err)))
		return
	}
	leave, err := pass.Enter(r.Context(), admit.Images, urlBytes(parts))
	if err != nil {
		openai.WriteError(w, openai.AsError(clientError(err)))
		return
	}
	defer leave()
	first := request{id: id, start: start, pass: pass, salt: pass.Salt("")}
	resp := control.WarmResponse{Items: g.warmAll(r.Context(), first, parts, encoders)}
	if r.Context().Err() == context.Canceled {
		return // nobody listens
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(resp) // a client that left is no fault
}

// warmAll warms every part by a request of its own, which is like and has its Encoder. Items fail alone.
func (g *Gateway) warmAll(ctx context.Context, like request, parts []openai.MediaPart, encoders forced) []control.WarmItem {
	items := make([]control.WarmItem, len(parts))
	left := &allowance{total: g.cfg.MaxRequestImageBytes}
	var grp errgroup.Group
	grp.SetLimit(fetchAtOnce)
	for i, p := range parts {
		grp.Go(func() error {
			req := like
			req.scan, req.buf, req.forced = &openai.Request{Media: []openai.MediaPart{p}}, proxy.NewBuffer(0), encoders.at(i)
			req.trace = &trace{start: like.start, ended: make(chan struct{}), latest: new(atomic.Uint64)}
			err := g.warm(ctx, &req, left)
			items[i] = warmItem(i, &req, err)
			return nil
		})
	}
	_ = grp.Wait()
	return items
}

// warmParts reads the body as media parts.
func (g *Gateway) warmParts(w http.ResponseWriter, r *http.Request) ([]openai.MediaPart, error) {
	body, err := proxy.TakeBody(w, r, g.bodyLimits())
	if err != nil {
		return nil, err
	}
	defer body.Release()
	var req control.WarmRequest
	if err := json.Unmarshal(body.Bytes(), &req); err != nil {
		return nil, openai.BadRequest("", `the body is not of the form {"images":[{"url":"data:image/png;base64,…"}]}: %v`, err)
	}
	if n := len(req.Images); n == 0 || n > g.cfg.MaxImages {
		return nil, openai.BadRequest("images", "%d images, want 1 to %d in one call", n, g.cfg.MaxImages)
	}
	if err := g.fleet.snapshot().checkModel(req.Model); err != nil {
		return nil, err
	}
	parts := make([]openai.MediaPart, len(req.Images))
	for i, m := range req.Images {
		path := fmt.Sprintf("images[%d].url", i)
		if m.URL == "" {
			return nil, openai.BadRequest(path, "%s is empty, want a data: or http: URL", path)
		}
		parts[i].URL, parts[i].Path = []byte(m.URL), path
	}
	return parts, nil
}

// urlBytes sums up what parts hold.
func urlBytes(parts []openai.MediaPart) (n int64) {
	for _, p := range parts {
		n += int64(len(p.URL))
	}
	return n
}

// warm brings one picture to its Encoder, with the same repairs as a chat.
func (g *Gateway) warm(ctx context.Context, req *request, left *allowance) error {
	part, err := g.reserve(ctx, req.scan.Media)
	if err != nil {
		return err
	}
	defer part.Release()
	m, err := g.loadImage(ctx, req.scan.Media[0], req.salt, left, true)
	if err != nil {
		return partError(req.scan.Media[0], err)
	}
	part.Keep(fetchedBytes([]*image{m}))
	m.parts = []int{0}
	req.pass.Images(int64(m.size))
	req.images = []*image{m}
	past := g.newHistory()
	for n := 0; ; n++ {
		err := g.warmOnce(ctx, req, past)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !past.note(err) || n >= g.cfg.Repairs:
			return err
		}
		g.metrics.repairs.Inc()
	}
}

func (g *Gateway) warmOnce(ctx context.Context, req *request, past *history) error {
	snap := g.fleet.snapshot()
	req.trace.attempt()
	enc, err := anyEncoder(snap, past)
	if err != nil {
		if past.cause != nil {
			err = past.cause
		}
		return err
	}
	attempt, err := g.named(ctx, enc, req)
	if err != nil {
		return retryElsewhere(enc, err)
	}
	req.images = attempt.images // for the report
	return g.encode(ctx, snap, attempt, []order{{grants: []control.Grant{}}}, past)
}

// warmItem reports one picture.
func warmItem(i int, req *request, err error) control.WarmItem {
	it := control.WarmItem{Index: i, MS: req.trace.since()}
	if len(req.images) > 0 {
		it.Identifier, it.Key = req.images[0].id, req.images[0].key
	}
	if err != nil {
		e := openai.AsError(clientError(err))
		it.Error = &control.Error{Status: e.Status, Type: e.Type, Message: e.Message, Param: e.Param}
		return it
	}
	for _, t := range req.trace.copy().Items {
		it.Source, it.Encoder, it.Rows, it.Cols, it.Bytes = t.Source, t.Encoder, t.Rows, t.Cols, t.Bytes
	}
	return it
}
