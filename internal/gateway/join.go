// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"

	"afterimage/internal/control"
	"afterimage/internal/tracing"
)

// join has a flight that another request leads delivered to a grant of this one.
func (g *Gateway) join(ctx context.Context, req *request, o order, f *flight) (err error) {
	defer g.flights.leave(f)
	ctx, span := g.cfg.Tracer.Start(ctx, "deliver", tracing.Client)
	span.Set("worker", f.enc.Seen.Name)
	defer func() { span.EndWith(err) }()
	ctx, cancel := context.WithTimeout(ctx, g.cfg.EncodeTimeout)
	defer cancel()
	g.metrics.joined.Inc()
	m := req.images[o.image]
	body := control.DeliverRequest{Request: req.id, Items: []control.EncodeItem{{Identifier: m.id, Rows: m.geo.Rows, Grants: o.grants}}}
	for {
		// Looked at before the call: what has landed is there for a call that comes after.
		landed := f.landed()
		if landed && f.failed() {
			return g.flightError(req, o, f)
		}
		var got control.EncodeResponse
		if err := g.call(ctx, f.enc, control.PathDeliver, body, &got); err != nil {
			return refusedCall(f.enc, err)
		}
		if len(got.Items) != 1 {
			return nonsense(f.enc, "answered %d items of 1", len(got.Items))
		}
		if e := got.Items[0].Error; e == nil || e.Type != control.TypeAbsent {
			return g.file(req, o, f.enc, &got, 0)
		}
		if landed && !f.failed() { // it has left the Encoder's cache already
			return g.encodeOn(ctx, f.enc, req, []order{o}, false)
		}
	}
}

// flightError is why a flight failed, in the words for one of its requests.
func (g *Gateway) flightError(req *request, o order, f *flight) error {
	if f.fault != nil {
		return encodeError(f.enc, req.scan.Media[req.images[o.image].parts[0]], f.fault)
	}
	return f.err
}

// lead makes the encode call of flights that this request leads, one for each of orders. It runs in the
// background, since it may outlive the request. done is closed when answered is set, or never will be.
func (g *Gateway) lead(ctx context.Context, e worker, req *request, orders []order, all []*flight, force bool) (done chan struct{}, answered *control.EncodeResponse) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.EncodeTimeout)
	g.flights.launch(all, stop)
	done, answered = make(chan struct{}), new(control.EncodeResponse)
	req.buf.Retain() // the request may end before the call does
	g.background.Go(func() {
		defer stop()
		defer close(done)
		defer req.buf.Release()
		got, err := g.encodeCall(ctx, e, req, orders, force)
		for i, f := range all {
			if err != nil {
				g.flights.land(f, nil, err)
				continue
			}
			fault := got.Items[i].Error
			if fault != nil && fault.Type == control.TypeDelivery {
				fault = nil // it is there, and others may get it
			}
			g.flights.land(f, fault, nil)
		}
		if err == nil {
			*answered = got
		}
	})
	return done, answered
}

// refusedCall tells a call that an Encoder refuses as a whole, which is between it and this gateway, from one
// that broke.
func refusedCall(e worker, err error) error {
	var answer *workerError
	if errors.As(err, &answer) {
		return &refusedError{url: e.URL, err: err}
	}
	return err
}
