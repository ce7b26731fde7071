// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// request is one client's call on its way through the gateway.
type request struct {
	id     string // the client's name for it, or ours
	scan   *openai.Request
	images []*image
	uses   []int
	body   []byte  // what P/D gets
	buf    *buffer // what the client sent, if images of data URLs lie in it
	forced string  // Encoder that the client asked for; "" leaves it to routing
	trace  *trace
	start  time.Time
}

// serveChat answers POST /v1/chat/completions. Of the client's headers only the request's name and the
// wish for an Encoder are read; calls to workers carry headers of their own.
func (g *Gateway) serveChat(w http.ResponseWriter, r *http.Request) {
	// Clients may choose the same names as others; what one of them may read of its request hangs on a
	// name that no other can guess.
	secret := randomHex(16)
	req := &request{id: requestID(r.Header.Get(control.HeaderRequestID), secret), start: time.Now(), forced: r.Header.Get(control.HeaderEncoder)}
	w.Header().Set(control.HeaderRequestID, req.id)
	w.Header().Set(control.HeaderTrace, secret)
	req.trace = g.traces.begin(secret, req.id)
	g.metrics.running.Inc()
	out := newReply(w, g.cfg.WriteTimeout)
	err := g.serve(w, r, req, out)
	req.buf.release()
	g.metrics.running.Dec()
	status := g.finish(req, out, err)
	out.end()
	req.trace.end(status, err)
	g.metrics.requests.WithLabelValues(strconv.Itoa(status)).Inc()
	g.metrics.duration.Observe(time.Since(req.start).Seconds())
}

// statusLeft stands for a client that left, in counters, traces and logs.
const statusLeft = 499

// finish reports err in the shape that still fits and returns the status that the client saw.
func (g *Gateway) finish(req *request, out *reply, err error) int {
	var told *toldError
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, context.Canceled):
		return statusLeft
	case out.started:
		g.metrics.cut.Inc()
		g.cfg.Logger.Warn("stream cut", "request", req.id, "err", err)
		if !errors.As(err, &told) {
			out.fail(err)
		}
		return http.StatusBadGateway
	}
	e := openai.AsError(clientError(err))
	if e.Status >= 500 {
		g.cfg.Logger.Warn("request failed", "request", req.id, "status", e.Status, "err", err)
	}
	openai.WriteError(out.w, e)
	return e.Status
}

// requestID takes over a client's name for its request when it is harmless, and own else.
func requestID(s, own string) string {
	ok := s != "" && len(s) <= 128
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] > ' ' && s[i] < 0x7f && s[i] != '/' && s[i] != '"' && s[i] != '\\'
	}
	if ok {
		return s
	}
	return own
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// serve reads and checks the request, then attempts it until an attempt ends well or for good.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, req *request, out *reply) error {
	if err := g.read(w, r, req); err != nil {
		return err
	}
	ctx, past := r.Context(), newHistory()
	for n := 0; ; n++ {
		req.trace.attempt()
		err := g.attempt(ctx, req, out, past)
		switch {
		case err == nil || out.started:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errNoneLeft) && past.cause != nil:
			return exhausted(past.cause, n)
		case !past.note(err) || n >= g.cfg.Repairs:
			return exhausted(err, n+1)
		}
		g.metrics.repairs.Inc()
		g.cfg.Logger.Info("repair", "request", req.id, "attempt", n+1, "cause", err)
	}
}

// read takes the body in, finds the media parts and loads their files.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, req *request) error {
	body, err := g.takeBody(w, r)
	if err != nil {
		return err
	}
	req.scan, err = openai.Scan(body.b, openai.ScanLimits{MaxImages: g.cfg.MaxImages})
	if err != nil {
		return err
	}
	req.trace.stage("read")
	snap := g.fleet.snapshot()
	if err := snap.checkModel(req.scan.Model); err != nil {
		return err
	}
	if err := checkForced(snap, req.forced); err != nil {
		return err
	}
	if len(req.scan.Media) == 0 {
		req.body = body.b
		return nil
	}
	if req.images, req.uses, err = g.loadImages(r.Context(), req.scan.Media); err != nil {
		return err
	}
	req.body = req.scan.Splice(func(i int) []byte {
		return fmt.Appendf(nil, `{"type":%q,"index":%d}`, control.ItemPartType, i)
	})
	req.buf = body // only now: after an error a part may still be decoded in it
	g.metrics.images.Add(float64(len(req.uses)))
	req.trace.stage("media")
	return nil
}
