// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"net/http"
	"time"

	"afterimage/internal/admit"
	"afterimage/internal/media"
	"afterimage/internal/openai"
	"afterimage/internal/proxy"
	"afterimage/internal/tracing"
	"afterimage/internal/vllm/relay"
)

// request is one client's call on its way through the front.
type request struct {
	id      string
	path    string // of the API
	env     *openai.Envelope
	media   []medium
	memory  *proxy.Buffer // what env lies in
	fetched *media.Part   // of the budget, for what was fetched
	start   time.Time
	pass    *admit.Pass
	salt    []byte   // of its tenant and its own; empty where tenants share
	apart   []byte   // likewise, but for its own where tenants share
	blocks  []uint64 // what the prompt begins with, see route.Prompt
	leave   func()   // gives up its place among the requests in work; nil while it has none
	model   string
	in      int64 // bytes of the body
	stages  []reached
	shown   []any // parameters for the log

	pictures []relay.Picture // media as the relay sees them; nil until they are needed
	relayed  int             // media that it brought in the latest attempt
}

// reached is the end of a stage, for the log.
type reached struct {
	name  string
	after time.Duration
}

// stage notes that a stage is done.
func (r *request) stage(name string) {
	if r.stages == nil {
		r.stages = make([]reached, 0, 6) // as many as there are
	}
	r.stages = append(r.stages, reached{name + "_ms", time.Since(r.start)})
}

const headerRequestID = "X-Request-Id"

// Paths of the API, the same at workers.
const (
	pathChat = "/v1/chat/completions"
	pathText = "/v1/completions" // prompts without media
)

// answer answers POST of either path. Of the client's headers only the request's name is read; calls to workers
// carry headers of their own.
func (f *Front) answer(w http.ResponseWriter, r *http.Request) {
	ctx, span := f.cfg.Tracer.Serve(r, "request")
	r = r.WithContext(ctx)
	req := &request{path: r.URL.Path, id: proxy.RequestID(r.Header.Get(headerRequestID), proxy.RandomHex(16)), start: time.Now(), pass: admit.From(r.Context())}
	w.Header().Set(headerRequestID, req.id)
	end := f.metrics.Begin()
	out := proxy.NewReply(w, f.cfg.WriteTimeout)
	err := f.serve(w, r, req, out)
	if req.leave != nil {
		req.leave()
	}
	if f.cfg.LogRequests && req.env != nil {
		req.shown = req.env.Shown()
	}
	req.fetched.Release()
	req.memory.Release()
	log := f.cfg.Logger
	if err != nil {
		log = log.With("request", req.id)
	}
	status := f.metrics.Finish(out, err, clientError, log)
	out.End()
	end(status)
	told := f.log(req, out, status, err)
	span.Set("request", req.id, "http.route", req.path, "http.response.status_code", status, "tenant", req.pass.Tenant(), "media", len(req.media))
	span.Fail(told)
	span.End()
}

// serve reads the request, then attempts it until an attempt ends well or for good.
func (f *Front) serve(w http.ResponseWriter, r *http.Request, req *request, out *proxy.Reply) error {
	ctx, past := r.Context(), &history{}
	defer past.leave()
	if err := f.read(w, r, req); err != nil {
		if ctx.Err() == context.DeadlineExceeded { // whatever it was that did not come to an end in time
			err = context.Cause(ctx)
		}
		return err
	}
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
	_, reading := f.cfg.Tracer.Start(r.Context(), "read", tracing.Internal)
	defer reading.End()
	in, err := proxy.NewIntake(w, r, f.cfg.Body)
	if err != nil {
		return err
	}
	taps := f.names.taps()
	defer taps.drop()
	tap := taps.tap
	if f.cfg.NoRewrite {
		tap = nil // no names, and none of the time that they take
	}
	env, bad := openai.ReadEnvelope(in, f.cfg.MaxMedia, tap)
	if bad != nil {
		taps.drop() // Rest may give the memory back
	}
	// The rest is read even if it is of no use: who is still sending hears no answer.
	if req.memory, err = in.Rest(); err != nil {
		return err
	}
	req.in = int64(len(req.memory.Bytes()))
	if bad != nil {
		return bad
	}
	req.model = env.ModelName()
	if req.env = env; req.path == pathText {
		env.Media = nil // prompts have none; what else is in the body is the worker's to judge
	}
	req.stage("read")
	reading.End()
	if err := req.enter(r.Context()); err != nil {
		return err
	}
	_, loading := f.cfg.Tracer.Start(r.Context(), "media", tracing.Internal)
	err = f.load(r.Context(), req)
	loading.EndWith(err)
	if err == nil && f.cfg.Routing == Affinity {
		req.blocks = blocks(req)
	}
	return err
}

// enter waits for the request's place among those in work, and notes its salt. It is here that text parts from
// media, before any is fetched.
func (r *request) enter(ctx context.Context) (err error) {
	own, err := r.env.CacheSalt()
	if err != nil {
		return err
	}
	if r.apart = r.pass.Salt(own); len(r.pass.Salt("")) > 0 { // else a salt of the client's own goes to the workers as it is
		r.salt = r.apart
	}
	kind := admit.Text
	if len(r.env.Media) > 0 {
		kind = admit.Images
	}
	r.leave, err = r.pass.Enter(ctx, kind, r.in)
	return err
}

// log writes the line of a request that has ended, and returns what its client was told of a failure.
func (f *Front) log(req *request, out *proxy.Reply, status int, err error) string {
	req.stage("total")
	l := proxy.Line{Request: req.id, Path: req.path, Model: req.model, Tenant: req.pass.Tenant(), Status: status, In: req.in}
	for _, s := range req.stages {
		l.More = append(l.More, s.name, proxy.Milliseconds(s.after))
	}
	if len(req.media) > 0 {
		l.More = append(l.More, "media", len(req.media))
		if f.cfg.Relay != nil {
			l.More = append(l.More, "relayed", req.relayed)
		}
	}
	l.More = append(l.More, req.shown...)
	if err != nil && status != proxy.StatusLeft {
		l.Err = openai.AsError(clientError(err)).Message
	}
	l.Log(f.cfg.Logger, out)
	return l.Err
}
