// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"

	"afterimage/internal/openai"
	"afterimage/internal/proxy"
	"afterimage/internal/route"
	"afterimage/internal/tracing"
)

// serveText answers POST /v1/completions: the body goes to a P/D as it is.
func (g *Gateway) serveText(w http.ResponseWriter, r *http.Request) { g.answer(w, r, g.readText) }

// readText takes the body in. What its prompts and options are worth, P/D says.
func (g *Gateway) readText(w http.ResponseWriter, r *http.Request, req *request) error {
	_, reading := g.cfg.Tracer.Start(r.Context(), "read", tracing.Internal)
	defer reading.End()
	in, err := proxy.NewIntake(w, r, g.bodyLimits())
	if err != nil {
		return err
	}
	env, bad := openai.ReadEnvelope(in, 0, nil)
	body, err := in.Rest()
	if err != nil {
		return err
	}
	req.in = int64(len(body.Bytes()))
	if bad == nil {
		req.scan, bad = env.Request()
	}
	if bad != nil {
		req.scan = nil // it refers to the body
		body.Release()
		return bad
	}
	req.trace.stage("read")
	reading.End()
	req.body = body.Bytes()
	if err := req.check(r.Header, g.fleet.snapshot()); err != nil {
		return err
	}
	if err := req.enter(r.Context()); err != nil {
		return err
	}
	if prompt := env.Raw("prompt"); len(prompt) > 0 {
		p := route.NewPrompt(req.salt)
		p.Text(prompt[:len(prompt)-1]) // a prompt that goes on ends elsewhere
		req.blocks = p.Blocks()
	}
	return nil
}
