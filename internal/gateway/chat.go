// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"

	"afterimage/internal/admit"
	"afterimage/internal/control"
	"afterimage/internal/proxy"
	"afterimage/internal/tracing"
)

// chat has w answer the request and relays the answer; or, unless over is nil, w may end with the prompt, and over
// takes the answer from there. begun is called when w answers.
func (g *Gateway) chat(ctx context.Context, req *request, out *proxy.Reply, w worker, attempt string, over handOver, begun func()) error {
	h, err := g.chatCall(ctx, req, out, w, attempt, over != nil, begun)
	if err != nil && over != nil {
		g.dismiss(w, control.PathHandOff, attempt) // it may have a state to hand over all the same, and its answer be lost
	}
	if err != nil || h == nil {
		return err
	}
	return over(ctx, *h)
}

// chatCall posts the request to w and relays its answer, or returns the hand-over that it answers with.
func (g *Gateway) chatCall(ctx context.Context, req *request, out *proxy.Reply, w worker, attempt string, movable bool, begun func()) (h *control.HandOff, err error) {
	whole := ctx
	ctx, span := g.cfg.Tracer.Start(whole, w.Seen.Role, tracing.Client)
	defer func() { span.EndWith(err) }()
	span.Set("worker", w.Seen.Name)
	ctx, done := g.fleet.silence.call(ctx, w.URL)
	defer done()
	hr, err := g.chatRequest(ctx, req, w, attempt, movable)
	if err != nil {
		return nil, err
	}
	sent := req.trace.since()
	resp, err := g.client.Do(hr)
	if err != nil {
		return nil, g.broken(ctx, w, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, g.refusal(ctx, w, resp)
	}
	begun()
	req.trace.arrived(req.images, resp.Header.Get(control.HeaderItems))
	if movable && resp.Header.Get("Content-Type") == control.HandOffType {
		return g.handedOver(ctx, req, w, resp)
	}
	req.trace.firstByte(sent, resp.Header.Get(control.HeaderFirstToken))
	g.metrics.FirstByte(req.start)
	span.End()
	_, streaming := g.cfg.Tracer.Start(whole, "stream", tracing.Client)
	err = g.relay(ctx, resp, out, w)
	if err == nil {
		g.outliers.worked(w.URL)
	}
	streaming.Set("bytes", out.Sent())
	streaming.EndWith(err)
	return nil, err
}

// handedOver returns the hand-over that w answers with.
func (g *Gateway) handedOver(ctx context.Context, req *request, w worker, resp *http.Response) (*control.HandOff, error) {
	req.trace.stage("prefill")
	h, err := readHandOff(w, resp)
	if err != nil {
		return nil, g.broken(ctx, w, err)
	}
	g.outliers.worked(w.URL)
	return h, nil
}

func (g *Gateway) chatRequest(ctx context.Context, req *request, w worker, attempt string, movable bool) (*http.Request, error) {
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+req.path, bytes.NewReader(req.body))
	if err != nil {
		return nil, err
	}
	hr.Header.Set("Content-Type", "application/json")
	hr.Header.Set(control.HeaderRequestID, req.id)
	hr.Header.Set(control.HeaderPrepare, attempt)
	if movable {
		hr.Header.Set(control.HeaderHandOff, "1")
	}
	if len(req.salt) > 0 {
		hr.Header.Set(control.HeaderScope, hex.EncodeToString(req.salt))
	}
	admit.TellTimeout(hr)
	tracing.Pass(hr)
	return hr, nil
}

// refusal turns an answer of w that is not one to the client's question into an error.
func (g *Gateway) refusal(ctx context.Context, w worker, resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxControlBody))
	if err != nil {
		return g.broken(ctx, w, err)
	}
	if resp.StatusCode == http.StatusConflict {
		var m control.Missing
		if err := json.Unmarshal(b, &m); err == nil && len(m.Missing) > 0 {
			return &missingError{url: w.URL, items: m.Missing, wrong: m.Wrong}
		}
	}
	g.outliers.answered(w, resp.StatusCode)
	return retryElsewhere(w, answered(w, resp.StatusCode, b))
}
