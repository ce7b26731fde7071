// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"afterimage/internal/admit"
	"afterimage/internal/control"
	"afterimage/internal/media"
	"afterimage/internal/openai"
	"afterimage/internal/proxy"
	"afterimage/internal/route"
	"afterimage/internal/tracing"
)

// request is one client's call on its way through the gateway.
type request struct {
	id      string // the client's name for it, or ours
	path    string // of the API, the same at P/D
	scan    *openai.Request
	images  []*image
	uses    []int
	body    []byte        // what P/D gets
	buf     *proxy.Buffer // what the client sent, if images of data URLs lie in it
	fetched *media.Part   // of the budget, for what was fetched
	forced  forced        // Encoders that the client asked for
	pd      string        // P/D that the client asked for; "" leaves it to routing
	blocks  []uint64      // what the prompt begins with, see route.Prompt
	in      int64         // bytes of the body
	shown   []any         // parameters for the log
	trace   *trace
	start   time.Time
	pass    *admit.Pass
	salt    []byte // of its tenant and its own
	leave   func() // gives up its place among the requests in work; nil while it has none
}

// reader takes a request's body in.
type reader func(w http.ResponseWriter, r *http.Request, req *request) error

// serveChat answers POST /v1/chat/completions.
func (g *Gateway) serveChat(w http.ResponseWriter, r *http.Request) { g.answer(w, r, g.readChat) }

// answer takes a request from its body to its end. Of the client's headers only the request's name and the
// wishes for workers are read; calls to workers carry headers of their own.
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, read reader) {
	// Clients may choose the same names as others; what one of them may read of its request hangs on a
	// name that no other can guess.
	secret := proxy.RandomHex(16)
	req := &request{path: r.URL.Path, id: proxy.RequestID(r.Header.Get(control.HeaderRequestID), secret), start: time.Now(), forced: readForced(r.Header.Get(control.HeaderEncoder)), pd: r.Header.Get(control.HeaderPrefill)}
	w.Header().Set(control.HeaderRequestID, req.id)
	w.Header().Set(control.HeaderTrace, secret)
	ctx, span := g.cfg.Tracer.Serve(r, "request")
	r = r.WithContext(ctx)
	req.pass = admit.From(ctx)
	req.trace = g.traces.begin(secret, req.id, req.pass.Tenant())
	end := g.metrics.Begin()
	out := proxy.NewReply(w, g.cfg.WriteTimeout)
	err := read(w, r, req)
	if ctx := r.Context(); err != nil && ctx.Err() == context.DeadlineExceeded {
		err = context.Cause(ctx) // whatever it was that did not come to an end in time
	}
	if err == nil {
		err = g.serve(r.Context(), req, out)
	}
	req.letGo(g.cfg.LogRequests)
	log := g.cfg.Logger
	if err != nil {
		log = log.With("request", req.id)
	}
	status := g.metrics.Finish(out, err, clientError, log)
	out.End()
	req.trace.end(status, err)
	t := req.trace.copy()
	g.seen.end(t, time.Now())
	end(status)
	g.log(req, out, t)
	span.Set("request", req.id, "http.route", req.path, "http.response.status_code", status, "tenant", req.pass.Tenant(), "images", len(req.images))
	span.Fail(t.Error)
	span.End()
}

// letGo gives up the place and the memory of a request that is over. What the log is to show lies in that memory, and is
// copied before.
func (req *request) letGo(show bool) {
	if req.leave != nil {
		req.leave()
	}
	if show && req.scan != nil {
		req.show()
	}
	req.fetched.Release()
	req.buf.Release()
}

// serve attempts a request until an attempt ends well or for good.
func (g *Gateway) serve(ctx context.Context, req *request, out *proxy.Reply) error {
	past := g.newHistory()
	for n := 0; ; n++ {
		req.trace.attempt()
		err := g.attempt(ctx, req, out, past)
		switch {
		case err == nil || out.Started():
			return err
		case ended(ctx, err):
			return context.Cause(ctx)
		case errors.Is(err, errChanged):
			past, n = g.newHistory(), n-1 // once for each image at most: the request has its bytes now
			continue
		case errors.Is(err, errFetched):
			n-- // likewise
			continue
		case errors.Is(err, errNoneLeft) && past.cause != nil:
			return exhausted(past.cause, n)
		case !past.note(err) || n >= g.cfg.Repairs:
			return exhausted(err, n+1)
		}
		g.metrics.repairs.Inc()
		g.cfg.Logger.Info("repair", "request", req.id, "attempt", n+1, "cause", err)
	}
}

// ended says whether the time of a request is over. A worker that was told how long it had, in whole milliseconds, may
// have said so a moment earlier; clients hear of the time that they gave.
func ended(ctx context.Context, err error) bool {
	var answer *workerError
	if end, ok := ctx.Deadline(); ok && errors.As(err, &answer) && answer.status == http.StatusGatewayTimeout && time.Until(end) < time.Second {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// take reads a body, has scan look at it while it comes, refuses what the fleet does not have, and waits for the request's
// turn. The caller has the one share of the buffer.
func (g *Gateway) take(w http.ResponseWriter, r *http.Request, req *request, scan func(*proxy.Intake) (*openai.Request, error)) (*proxy.Buffer, error) {
	_, reading := g.cfg.Tracer.Start(r.Context(), "read", tracing.Internal)
	defer reading.End()
	in, err := proxy.NewIntake(w, r, g.bodyLimits())
	if err != nil {
		return nil, err
	}
	found, bad := scan(in)
	// The rest is read even if it is of no use: who is still sending hears no answer.
	body, err := in.Rest()
	if err != nil {
		return nil, err
	}
	req.in = int64(len(body.Bytes()))
	if bad != nil {
		body.Release()
		return nil, bad
	}
	req.scan = found // which refers to the body
	req.trace.stage("read")
	reading.End()
	if err := req.check(r.Header, g.fleet.snapshot()); err != nil {
		return nil, err
	}
	return body, req.enter(r.Context())
}

// readChat takes the body in, finds the media parts and loads their files.
func (g *Gateway) readChat(w http.ResponseWriter, r *http.Request, req *request) error {
	body, err := g.take(w, r, req, func(in *proxy.Intake) (*openai.Request, error) {
		// Pictures are decoded and digested while they come.
		return openai.ScanFrom(in, openai.ScanLimits{MaxImages: g.cfg.MaxImages, Tap: func() openai.Tap { return media.NewReception() }})
	})
	if err != nil {
		return err
	}
	if len(req.scan.Media) == 0 {
		req.body = body.Bytes()
		req.blocks = blocks(req)
		return nil
	}
	_, loading := g.cfg.Tracer.Start(r.Context(), "media", tracing.Internal)
	req.images, req.uses, err = g.loadImages(r.Context(), req)
	loading.EndWith(err)
	if err != nil {
		return err
	}
	req.blocks = blocks(req)
	req.pass.Images(fileBytes(req.images))
	req.body = req.scan.Splice(func(i int) []byte {
		return fmt.Appendf(nil, `{"type":%q,"index":%d}`, control.ItemPartType, i)
	})
	req.buf = body // only now: after an error a part may still be decoded in it
	g.metrics.images.Add(float64(len(req.uses)))
	req.trace.stage("media")
	return nil
}

// check refuses what the fleet does not have, and wishes that are not the client's to make.
func (req *request) check(h http.Header, snap *snapshot) error {
	if err := mayChoose(req.pass, h); err != nil {
		return err
	}
	if err := snap.checkModel(req.scan.Model); err != nil {
		return err
	}
	if err := req.forced.check(snap, len(req.scan.Media)); err != nil {
		return err
	}
	return checkForced(control.HeaderPrefill, "P/D", snap.Prefills, req.pd)
}

// blocks names the beginnings of a request's conversation. Conversations of different salts, which are those of
// tenants that share nothing, have none in common.
func blocks(req *request) []uint64 {
	p := route.NewPrompt(req.salt)
	req.scan.Walk(p.Text, func(i int) { p.Image(req.images[req.uses[i]].digest[:]) })
	return p.Blocks()
}
