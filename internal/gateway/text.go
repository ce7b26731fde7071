// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"

	"afterimage/internal/openai"
	"afterimage/internal/proxy"
	"afterimage/internal/route"
)

// serveText answers POST /v1/completions: the body goes to a P/D as it is.
func (g *Gateway) serveText(w http.ResponseWriter, r *http.Request) { g.answer(w, r, g.readText) }

// readText takes the body in. What its prompts and options are worth, P/D says.
func (g *Gateway) readText(w http.ResponseWriter, r *http.Request, req *request) error {
	var env *openai.Envelope
	body, err := g.take(w, r, req, func(in *proxy.Intake) (_ *openai.Request, err error) {
		if env, err = openai.ReadEnvelope(in, 0, nil); err != nil {
			return nil, err
		}
		return env.Request()
	})
	if err != nil {
		return err
	}
	req.body = body.Bytes()
	if prompt := env.Raw("prompt"); len(prompt) > 0 {
		p := route.NewPrompt(req.salt)
		p.Text(prompt[:len(prompt)-1]) // a prompt that goes on ends elsewhere
		req.blocks = p.Blocks()
	}
	return nil
}
