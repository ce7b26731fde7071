// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"afterimage/internal/openai"
	"afterimage/internal/proxy"
)

// request is one client's call on its way through the front.
type request struct {
	id     string
	env    *openai.Envelope
	media  []medium
	memory *proxy.Buffer // what env lies in
	start  time.Time
	stages []any // for the log: name, milliseconds, …
}

// stage notes that a stage is done.
func (r *request) stage(name string) {
	r.stages = append(r.stages, name+"_ms", float64(time.Since(r.start).Microseconds())/1000)
}

const headerRequestID = "X-Request-Id"

// serveChat answers POST /v1/chat/completions. Of the client's headers only the request's name is read; calls to
// workers carry headers of their own.
func (f *Front) serveChat(w http.ResponseWriter, r *http.Request) {
	req := &request{id: proxy.RequestID(r.Header.Get(headerRequestID), proxy.RandomHex(16)), start: time.Now()}
	w.Header().Set(headerRequestID, req.id)
	f.metrics.running.Inc()
	out := proxy.NewReply(w, f.cfg.WriteTimeout)
	err := f.serve(w, r, req, out)
	req.memory.Release()
	f.metrics.running.Dec()
	status := f.finish(req, out, err)
	out.End()
	f.metrics.requests.WithLabelValues(strconv.Itoa(status)).Inc()
	f.metrics.duration.Observe(time.Since(req.start).Seconds())
	if f.cfg.LogRequests {
		req.stage("total")
		about := []any{"request", req.id, "status", status, "media", len(req.media)}
		f.cfg.Logger.Info("request", append(about, req.stages...)...)
	}
}

// finish reports err in the shape that still fits and returns the status that the client saw.
func (f *Front) finish(req *request, out *proxy.Reply, err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, context.Canceled):
		return proxy.StatusLeft
	case out.Started():
		f.metrics.cut.Inc()
		f.cfg.Logger.Warn("stream cut", "request", req.id, "err", err)
		if !errors.Is(err, proxy.ErrToldFailure) {
			out.Fail(clientError(err))
		}
		return http.StatusBadGateway
	}
	e := openai.AsError(clientError(err))
	if e.Status >= 500 {
		f.cfg.Logger.Warn("request failed", "request", req.id, "status", e.Status, "err", err)
	}
	out.Error(e)
	return e.Status
}

// serve reads the request, then attempts it until an attempt ends well or for good.
func (f *Front) serve(w http.ResponseWriter, r *http.Request, req *request, out *proxy.Reply) error {
	if err := f.read(w, r, req); err != nil {
		return err
	}
	ctx, past := r.Context(), &history{}
	for {
		err := f.attempt(ctx, req, out, past)
		switch {
		case err == nil || out.Started():
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !past.again(err, f.cfg):
			return err
		}
		f.metrics.retries.WithLabelValues(string(past.stage)).Inc()
		f.cfg.Logger.Info("again", "request", req.id, "stage", past.stage, "cause", err)
	}
}

// read takes the body in, looks at it while it comes, and names its media.
func (f *Front) read(w http.ResponseWriter, r *http.Request, req *request) error {
	in, err := proxy.NewIntake(w, r, f.cfg.Body)
	if err != nil {
		return err
	}
	env, bad := openai.ReadEnvelope(in, f.cfg.MaxMedia, f.names.tap)
	// The rest is read even if it is of no use: who is still sending hears no answer.
	if req.memory, err = in.Rest(); err != nil {
		return err
	}
	if bad != nil {
		return bad
	}
	req.env = env
	req.stage("read")
	return f.load(r.Context(), req)
}
