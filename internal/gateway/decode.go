// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/proxy"
	"afterimage/internal/route"
)

// handOver takes an answer over from a P/D that has computed the prompt; nil leaves the answer to the P/D.
type handOver func(ctx context.Context, h control.HandOff) error

// aloneError: no decode worker took the answer over. The P/D may give it alone.
type aloneError struct{ err error }

func (e *aloneError) Error() string { return e.err.Error() }
func (e *aloneError) Unwrap() error { return e.err }

// handOver returns how the answer of an attempt on pd goes on at a decode worker, nil where it does not. left is
// called when pd has nothing more to do than to deliver.
func (g *Gateway) handOver(snap *snapshot, req *request, out *proxy.Reply, pd worker, attempt string, past *history, left func()) handOver {
	if len(snap.Decodes) == 0 {
		return nil
	}
	if past.alone || !slices.ContainsFunc(snap.Decodes, func(w worker) bool { return w.Up }) {
		g.metrics.handOffs.WithLabelValues("alone").Inc()
		return nil
	}
	return func(ctx context.Context, h control.HandOff) error {
		left()
		defer g.dismiss(pd, control.PathHandOff, attempt)
		err := g.decode(ctx, req, out, pd, attempt, h, past)
		result := "decode"
		if err != nil {
			result = "failed"
		}
		g.metrics.handOffs.WithLabelValues(result).Inc()
		return err
	}
}

// decode has the decode workers answer, each in turn until one does. What fails before its first byte costs the
// client nothing: pd keeps the state.
func (g *Gateway) decode(ctx context.Context, req *request, out *proxy.Reply, pd worker, attempt string, h control.HandOff, past *history) error {
	tried := map[string]bool{}
	for {
		d, err := pickDecode(g.fleet.snapshot(), attempt, tried, past)
		if err != nil {
			return &aloneError{err}
		}
		tried[d.URL] = true
		req.trace.decode(d.Seen.Name, h.Bytes)
		err = g.adopt(ctx, req, out, pd, d, attempt, h)
		if err == nil || out.Started() || ctx.Err() != nil || blames(err, pd.URL) || !past.note(err) {
			return err
		}
		g.metrics.repairs.Inc()
		g.cfg.Logger.Info("hand-over failed", "request", req.id, "decode", d.Seen.Name, "cause", err)
	}
}

// blames says whether the call that broke was one to the worker at url.
func blames(err error, url string) bool {
	var broken *brokenError
	return errors.As(err, &broken) && broken.url == url
}

// pickDecode chooses the decode worker with the least load among those that were not tried.
func pickDecode(snap *snapshot, key string, tried map[string]bool, past *history) (worker, error) {
	i := past.pick(snap.Decodes, func(ps []route.Peer) int {
		for i := range ps {
			ps[i].Ready = ps[i].Ready && !tried[snap.Decodes[i].URL]
		}
		return route.LeastLoaded(key, ps)
	})
	if i >= 0 {
		return snap.Decodes[i], nil
	}
	return worker{}, openai.Unavailable(retryAfter, "no decode worker takes the answer over (%d of %d tried)", len(tried), len(snap.Decodes))
}

// adopt has d make room for the state, pd deliver it, and d answer.
func (g *Gateway) adopt(ctx context.Context, req *request, out *proxy.Reply, pd, d worker, attempt string, h control.HandOff) error {
	var room control.AdoptResponse
	wait, cancel := context.WithTimeout(ctx, g.cfg.PrepareTimeout)
	err := g.call(wait, d, control.PathAdopt, control.AdoptRequest{Request: attempt, Engine: pd.Seen.Engine, HandOff: h}, &room)
	cancel()
	if err == nil {
		err = g.sideBySide(ctx, out, func(ctx context.Context) error {
			return g.deliver(ctx, req, pd, d, attempt, room.Grant)
		}, func(ctx context.Context, begun func()) error {
			return g.chat(ctx, req, out, d, attempt, nil, begun)
		})
	}
	if err != nil {
		g.dismiss(d, control.PathAdopt, attempt)
	}
	return retryElsewhere(d, err)
}

// deliver has pd send the state. Where it says that it could not, d is the one to avoid.
func (g *Gateway) deliver(ctx context.Context, req *request, pd, d worker, attempt string, grant control.Grant) error {
	var done control.HandOffResponse
	err := g.call(ctx, pd, control.PathHandOff, control.HandOffRequest{Request: attempt, Grant: grant}, &done)
	var answer *workerError
	switch {
	case errors.As(err, &answer):
		return &refusedError{url: d.URL, err: err}
	case err == nil:
		req.trace.handedOff(done.MS)
	}
	return err
}

// readHandOff reads what a P/D answers in the place of tokens.
func readHandOff(pd worker, resp *http.Response) (*control.HandOff, error) {
	var h control.HandOff
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxControlBody)).Decode(&h); err != nil {
		return nil, fmt.Errorf("%s: the hand-over: %w", pd.Seen.Name, err)
	}
	return &h, nil
}
