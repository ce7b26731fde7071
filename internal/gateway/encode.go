// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/tracing"
)

// order asks for one image of a request to be delivered to grants; without any it is encoded for the Store
// alone.
type order struct {
	image  int
	grants []control.Grant
	wrong  bool // the Store must not keep the object that it has
}

// encode has every order carried out: by the flight of another request where there is one, else by a call to
// the Encoder of the image.
func (g *Gateway) encode(ctx context.Context, snap *snapshot, req *request, orders []order, past *history) error {
	grp, ctx := errgroup.WithContext(ctx)
	calls, led := map[callKey]*batch{}, map[callKey]int{}
	for _, o := range orders {
		m := req.images[o.image]
		o.wrong = past.wrong[o.image]
		forced := past.forces(o.image) && !g.flights.fresh(m.key, past.force[o.image])
		pick := func() (worker, error) {
			i, err := g.choose.encoder(snap, req, m, forced, past)
			if err != nil {
				return worker{}, err
			}
			return snap.Encoders[i], nil
		}
		f, leads, err := g.board(snap, req, o, flightKey{m.key, forced}, past, pick)
		switch {
		case err != nil:
			return g.abandon(calls, grp, err)
		case !leads:
			grp.Go(func() error { return g.join(ctx, req, o, f) })
		default:
			k := callKey{url: f.enc.URL, forced: forced}
			n := led[k]
			led[k]++
			k.part = n / groupItems
			calls[k] = calls[k].with(o, f)
		}
	}
	for k, b := range calls {
		done, answered := g.lead(ctx, b.flights[0].enc, req, b.orders, b.flights, k.forced)
		grp.Go(func() error { return g.await(ctx, req, b, done, answered) })
	}
	return grp.Wait()
}

// groupItems is how many images one encode call has at most: an Encoder takes 64, and what is answered early is
// delivered early.
const groupItems = 16

// callKey tells encode calls of one request apart: force goes for a whole call.
type callKey struct {
	url    string
	forced bool
	part   int
}

// batch is what one encode call is about.
type batch struct {
	orders  []order
	flights []*flight
}

func (b *batch) with(o order, f *flight) *batch {
	if b == nil {
		b = &batch{}
	}
	b.orders, b.flights = append(b.orders, o), append(b.flights, f)
	return b
}

// board finds or makes the flight of an order. Where the client has named the Encoder, or the image is for the
// Store alone, it is one of its own.
func (g *Gateway) board(snap *snapshot, req *request, o order, key flightKey, past *history, pick func() (worker, error)) (*flight, bool, error) {
	if len(req.forced) == 0 && len(o.grants) > 0 {
		return g.flights.board(key, past, req.start, snap.stalled, pick)
	}
	enc, err := pick()
	if err != nil {
		return nil, false, err
	}
	return newFlight(key, enc, past.round), true, nil
}

// abandon ends an encode that has found no Encoder for one of its images.
func (g *Gateway) abandon(calls map[callKey]*batch, grp *errgroup.Group, err error) error {
	for _, b := range calls {
		for _, f := range b.flights {
			g.flights.land(f, nil, err)
			g.flights.leave(f)
		}
	}
	grp.Go(func() error { return err })
	return grp.Wait()
}

// await waits for the call that this request leads.
func (g *Gateway) await(ctx context.Context, req *request, b *batch, done chan struct{}, answered *control.EncodeResponse) error {
	defer func() {
		for _, f := range b.flights {
			g.flights.leave(f)
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := b.flights[0].err; err != nil {
		return err
	}
	for i, o := range b.orders {
		if err := g.file(req, o, b.flights[i].enc, answered, i); err != nil {
			return err
		}
	}
	return nil
}

// encodeRequest returns the request of an encode call for the picked orders. Its body has a share of the
// memory that they lie in.
func encodeRequest(ctx context.Context, e worker, req *request, pick []order, force bool) (*http.Request, error) {
	head := control.EncodeRequest{Request: req.id, Force: force, Tenant: req.pass.Tenant()}
	var files [][]byte
	for _, o := range pick {
		m := req.images[o.image]
		head.Items = append(head.Items, control.EncodeItem{Identifier: m.id, Bytes: len(m.file), Rows: m.geo.Rows, Grants: o.grants, Wrong: o.wrong})
		files = append(files, m.file)
	}
	body, length, err := control.NewEncodeBody(head, files)
	if err != nil {
		return nil, err
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+control.PathEncode, req.buf.Share(body))
	if err != nil {
		return nil, err
	}
	hr.ContentLength = length
	hr.Header.Set("Content-Type", control.EncodeContentType)
	hr.Header.Set(control.HeaderRequestID, req.id)
	tracing.Pass(hr)
	return hr, nil
}

// encodeOn makes an encode call that is no flight and files its answers.
func (g *Gateway) encodeOn(ctx context.Context, e worker, req *request, pick []order, force bool) error {
	got, err := g.encodeCall(ctx, e, req, pick, force)
	if err != nil {
		return err
	}
	for i, o := range pick {
		if err := g.file(req, o, e, &got, i); err != nil {
			return err
		}
	}
	return nil
}

// encodeCall makes one encode call. Its answers are as many as the orders.
func (g *Gateway) encodeCall(ctx context.Context, e worker, req *request, pick []order, force bool) (got control.EncodeResponse, err error) {
	ctx, span := g.cfg.Tracer.Start(ctx, "encode", tracing.Client)
	span.Set("worker", e.Seen.Name, "images", len(pick), "forced", force)
	defer func() { span.EndWith(err) }()
	hr, err := encodeRequest(ctx, e, req, pick, force)
	if err != nil {
		return got, err
	}
	// A call that fails keeps this share: net/http may close its body and still be reading it.
	req.buf.Retain()
	if err := g.do(hr, e, &got); err != nil {
		// What the caller did wrong, an Encoder says per item.
		return got, refusedCall(e, err)
	}
	req.buf.Release()
	if len(got.Items) != len(pick) {
		return got, nonsense(e, "answered %d items of %d", len(got.Items), len(pick))
	}
	return got, nil
}

// file notes answer i of an Encoder, which is about o.
func (g *Gateway) file(req *request, o order, e worker, got *control.EncodeResponse, i int) error {
	a, m := got.Items[i], req.images[o.image]
	if a.Error != nil {
		return encodeError(e, req.scan.Media[m.parts[0]], a.Error)
	}
	req.trace.item(m, got.Encoder, a)
	g.metrics.items.WithLabelValues(string(a.Source)).Inc()
	return nil
}

// encodeError tells the caller's faults, which name the part, from those of the Encoder and of what lies
// between it and P/D.
func encodeError(e worker, p openai.MediaPart, err *control.Error) error {
	own := &workerError{worker: e.Seen.Name, status: err.Status, shaped: true,
		body: openai.Error{Status: err.Status, Type: err.Type, Message: err.Message}}
	switch {
	case err.Type == control.TypeDelivery:
		return &undeliveredError{own}
	case own.final():
		return partError(p, err)
	}
	return &refusedError{url: e.URL, err: own}
}
