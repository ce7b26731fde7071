// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/route"
)

// attempt takes a request once through the fleet. avoid holds the URLs of workers that failed it
// before, force the images that must be encoded afresh.
func (g *Gateway) attempt(ctx context.Context, req *request, out *reply, avoid map[string]bool, force map[int]bool) error {
	snap := g.fleet.snapshot()
	pd, err := pickPrefill(snap, req.id, avoid)
	if err != nil {
		return err
	}
	req.trace.prefill(pd.Seen.Name)
	if len(req.images) == 0 {
		return g.chat(ctx, req, out, pd, "")
	}
	any, ok := snap.encoder()
	if !ok {
		return unavailableWorker(snap.need("Encoder", snap.Encoders))
	}
	if err := g.name(ctx, any, req.images); err != nil {
		return retryElsewhere(any, err)
	}
	attempt := randomHex(16)
	grants, err := g.prepare(ctx, req, pd, any, attempt, len(force) > 0)
	if err != nil {
		return retryElsewhere(pd, err)
	}
	req.trace.stage("prepare")

	// From here the chat call and the encode calls run side by side. The first that fails ends the
	// others; its error is the cause.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	encoded := make(chan struct{})
	go func() {
		defer close(encoded)
		if err := g.encode(ctx, snap, req, grants, avoid, force); err != nil {
			cancel(err)
		}
	}()
	out.before = func() { // the trace of a served request names its sources
		select {
		case <-encoded:
		case <-time.After(traceGrace):
		}
	}
	err = g.chat(ctx, req, out, pd, attempt)
	if cause := context.Cause(ctx); cause != nil && !out.started {
		err = cause
	}
	if err != nil {
		cancel(err)
		<-encoded // no encode call outlives its attempt
		g.release(pd, attempt)
	}
	return err
}

// traceGrace is how long a finished prefill waits for the Encoders' answers before its first byte goes
// out. They follow the delivery at once, so the wait is nearly always nothing.
const traceGrace = 250 * time.Millisecond

// pickPrefill chooses the P/D with the least load; key spreads requests over equals.
func pickPrefill(snap *snapshot, key string, avoid map[string]bool) (worker, error) {
	if i := route.LeastLoaded(key, peers(snap.Prefills, avoid)); i >= 0 {
		return snap.Prefills[i], nil
	}
	if err := snap.need("P/D", snap.Prefills); err != nil {
		return worker{}, unavailableWorker(err)
	}
	return worker{}, unavailableWorker(errors.New("every P/D has failed this request"))
}

func unavailableWorker(err error) error { return openai.Unavailable(retryAfter, "%v", err) }

// retryElsewhere marks an answer that another worker, or the same one a little later, need not repeat.
func retryElsewhere(w worker, err error) error {
	var answer *workerError
	if errors.As(err, &answer) && !answer.final() {
		return &refusedError{url: w.URL, err: err}
	}
	return err
}

// prepare has P/D check the request and returns one grant per image.
func (g *Gateway) prepare(ctx context.Context, req *request, pd, enc worker, attempt string, force bool) ([]control.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.PrepareTimeout)
	defer cancel()
	body := control.PrepareRequest{Request: attempt, Engine: enc.Seen.Engine, Chat: req.body, ForceEncode: force}
	body.Uses = req.uses
	for _, m := range req.images {
		body.Items = append(body.Items, control.PrepareItem{
			Identifier: m.id, Key: m.key, Contract: m.want, Tokens: m.geo.Tokens, Bytes: m.geo.Bytes,
		})
	}
	var got control.PrepareResponse
	if err := g.call(ctx, pd, control.PathPrepare, body, &got); err != nil {
		return nil, err
	}
	if len(got.Items) != len(req.images) {
		return nil, fmt.Errorf("%s prepared %d items of %d", pd.Seen.Name, len(got.Items), len(req.images))
	}
	grants := make([]control.Grant, len(got.Items))
	for i, it := range got.Items {
		if it.State != control.Need || it.Grant == nil {
			return nil, fmt.Errorf("%s answered state %q without a grant for image %d", pd.Seen.Name, it.State, i)
		}
		grants[i] = *it.Grant
	}
	return grants, nil
}

// releaseTimeout bounds the call that gives unused grants back; they expire by themselves too.
const releaseTimeout = time.Second

// release gives back the grants of an attempt that failed.
func (g *Gateway) release(pd worker, attempt string) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, pd.URL+control.PathPrepare+"/"+attempt, nil)
	if err != nil {
		return
	}
	if resp, err := g.client.Do(req); err == nil {
		resp.Body.Close()
	}
}

// chat posts the conversation to P/D and relays the answer.
func (g *Gateway) chat(ctx context.Context, req *request, out *reply, pd worker, attempt string) error {
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, pd.URL+control.PathChat, bytes.NewReader(req.body))
	if err != nil {
		return err
	}
	hr.Header.Set("Content-Type", "application/json")
	hr.Header.Set(control.HeaderRequestID, req.id)
	if attempt != "" {
		hr.Header.Set(control.HeaderPrepare, attempt)
	}
	resp, err := g.client.Do(hr)
	if err != nil {
		return g.broken(ctx, pd, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		req.trace.stage("prefill")
		g.metrics.firstByte.Observe(time.Since(req.start).Seconds())
		return g.relay(ctx, resp, out, pd)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxControlBody))
	if err != nil {
		return g.broken(ctx, pd, err)
	}
	if resp.StatusCode == http.StatusConflict {
		var m control.Missing
		if err := json.Unmarshal(b, &m); err == nil && len(m.Missing) > 0 {
			return &missingError{items: m.Missing}
		}
	}
	return retryElsewhere(pd, answered(pd, resp.StatusCode, b))
}
