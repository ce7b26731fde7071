// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/proxy"
	"afterimage/internal/tracing"
)

// attempt takes a request once through the fleet.
func (g *Gateway) attempt(ctx context.Context, req *request, out *proxy.Reply, past *history) error {
	snap := g.fleet.snapshot()
	attempt := proxy.RandomHex(16)
	pd, done, err := g.choose.prefill(snap, req, attempt, past)
	if err != nil {
		return err
	}
	done = sync.OnceFunc(done)
	defer done()
	req.trace.prefill(pd.Seen.Name)
	over := g.handOver(snap, req, out, pd, attempt, past, done)
	if len(req.images) == 0 {
		return g.chat(ctx, req, out, pd, attempt, over, func() {})
	}
	enc, lack, err := namer(snap, past)
	if err != nil {
		return err
	}
	base := req
	if req, err = g.namedBy(ctx, enc, base); err != nil {
		return err
	}
	g.thumbnails.offer(req.images)
	orders, err := g.prepare(ctx, req, pd, enc, attempt, past)
	if err != nil || lack != nil && len(orders) > 0 {
		g.release(pd, attempt) // it may have granted all the same, and its answer may be lost
		return prepareError(pd, err, lack)
	}
	if lacking := base.withoutFiles(orders); len(lacking) > 0 {
		g.release(pd, attempt)
		done()
		return g.fetchFirst(ctx, base, lacking)
	}
	req.trace.stage("prepare")
	err = g.bothCalls(ctx, req, out, pd, attempt, over, func(ctx context.Context) error { return g.supply(ctx, snap, req, orders, past) })
	if err != nil {
		g.release(pd, attempt)
	}
	return err
}

// supply has the Encoders deliver what a P/D needs.
func (g *Gateway) supply(ctx context.Context, snap *snapshot, req *request, orders []order, past *history) error {
	err := g.encode(ctx, snap, req, orders, past)
	if err == nil && len(orders) > 0 {
		req.trace.stage("delivered")
	}
	return err
}

// namer returns the Encoder by whose rules an attempt names images. lack is why none can be asked to encode, where names
// are known all the same; err why there are no names either.
func namer(snap *snapshot, past *history) (enc worker, lack, err error) {
	enc, lack = anyEncoder(snap, past)
	if lack == nil {
		return enc, nil, nil
	}
	enc, known := snap.remembered()
	if !known || errors.Is(lack, errNoneLeft) {
		return worker{}, nil, lack
	}
	return enc, lack, nil
}

// namedBy returns req with the names that enc gives to its images.
func (g *Gateway) namedBy(ctx context.Context, enc worker, req *request) (*request, error) {
	if enc.Seen.VLLM != nil { // whose names are of the bytes
		if err := g.fill(ctx, req, func(int) bool { return true }); err != nil {
			return nil, err
		}
	}
	own, err := g.named(ctx, enc, req)
	return own, retryElsewhere(enc, err)
}

// prepareError is what a prepare call that did not lead on comes to. lack says why no Encoder could have helped;
// then P/D is not to blame for what it needs one for.
func prepareError(pd worker, err, lack error) error {
	var answer *workerError
	if lack != nil && (err == nil || errors.As(err, &answer) && !answer.final()) {
		return lack
	}
	return retryElsewhere(pd, err)
}

// bothCalls runs the encode calls and the chat call side by side. What other requests have joined goes on after
// bothCalls, for them.
func (g *Gateway) bothCalls(ctx context.Context, req *request, out *proxy.Reply, pd worker, attempt string, over handOver, encode func(context.Context) error) error {
	if g.cfg.NoOverlap {
		if err := encode(ctx); err != nil {
			return err
		}
		encode = func(context.Context) error { return nil }
	}
	return g.sideBySide(ctx, out, encode, func(ctx context.Context, begun func()) error {
		return g.chat(ctx, req, out, pd, attempt, over, begun)
	})
}

// sideBySide runs supply, which delivers what a worker waits for, and answer, the call that it waits in. The first
// that fails ends the other; its error is the cause. Once the worker answers (begun) it has everything, and the
// fate of supply matters no more.
func (g *Gateway) sideBySide(ctx context.Context, out *proxy.Reply, supply func(context.Context) error, answer func(ctx context.Context, begun func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards answered
	answered := false
	supplied := make(chan struct{})
	go func() {
		defer close(supplied)
		err := supply(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err != nil && !answered {
			cancel(err)
		}
	}()
	err := answer(ctx, func() {
		mu.Lock()
		answered = true
		mu.Unlock()
		select { // the trace of a served request names its sources
		case <-supplied:
		case <-time.After(traceGrace):
		}
	})
	if cause := context.Cause(ctx); err != nil && cause != nil && !out.Started() {
		err = cause
	}
	cancel(err)
	<-supplied
	return err
}

// traceGrace is how long an answer waits for the Encoders' reports before its first byte goes out. They
// follow the delivery at once, so the wait is nearly always nothing.
const traceGrace = 250 * time.Millisecond

func unavailableWorker(err error) error { return openai.Unavailable(retryAfter, "%v", err) }

// retryElsewhere marks an answer that another worker, or the same one a little later, need not repeat.
func retryElsewhere(w worker, err error) error {
	var answer *workerError
	if errors.As(err, &answer) && !answer.final() {
		return &refusedError{url: w.URL, err: err}
	}
	return err
}

// prepare has P/D check the request, and returns an order for each image that it needs an Encoder for.
func (g *Gateway) prepare(ctx context.Context, req *request, pd, enc worker, attempt string, past *history) (orders []order, err error) {
	ctx, span := g.cfg.Tracer.Start(ctx, "prepare", tracing.Client)
	defer func() {
		span.Set("worker", pd.Seen.Name, "images", len(req.images), "needed", len(orders))
		span.EndWith(err)
	}()
	ctx, cancel := context.WithTimeout(ctx, g.cfg.PrepareTimeout)
	defer cancel()
	body := control.PrepareRequest{Request: attempt, Engine: enc.Seen.Engine, Chat: req.body}
	body.Uses = req.uses
	for i, m := range req.images {
		body.Items = append(body.Items, control.PrepareItem{
			Identifier: m.id, Key: m.key, Contract: m.want, Tokens: m.geo.Tokens, Bytes: m.geo.Bytes, Force: past.forces(i), ByEncoder: len(req.forced) > 0,
		})
	}
	var got control.PrepareResponse
	if err := g.call(ctx, pd, control.PathPrepare, body, &got); err != nil {
		return nil, err
	}
	if len(got.Items) != len(req.images) {
		return nil, nonsense(pd, "prepared %d items of %d", len(got.Items), len(req.images))
	}
	req.trace.prepared(&got)
	for i, it := range got.Items {
		switch {
		case it.State == control.Need && it.Grant != nil:
			orders = append(orders, order{image: i, grants: []control.Grant{*it.Grant}})
		case it.State == control.Ready, it.State == control.Loading:
			req.trace.held(req.images[i], it)
			g.metrics.items.WithLabelValues(string(it.Source)).Inc()
		default:
			return nil, nonsense(pd, "answered state %q without a grant for image %d", it.State, i)
		}
	}
	return orders, nil
}

// releaseTimeout bounds the call that gives unused grants back; they expire by themselves too.
const releaseTimeout = time.Second

// release gives back the grants of an attempt that failed.
func (g *Gateway) release(pd worker, attempt string) { g.dismiss(pd, control.PathPrepare, attempt) }

// dismiss has w let go of what it keeps for an attempt at path, in the background: the client, or the next
// attempt, need not wait for it. Close does.
func (g *Gateway) dismiss(w worker, path, attempt string) {
	g.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, w.URL+path+"/"+attempt, nil)
		if err != nil {
			return
		}
		if resp, err := g.client.Do(req); err == nil {
			resp.Body.Close()
		}
	})
}
