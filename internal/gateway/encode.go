// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/route"
)

// pickEncoder chooses the Encoder of one image.
func pickEncoder(snap *snapshot, req *request, m *image, past *history) (int, error) {
	if len(req.forced) > 0 {
		i, err := route.Forced(req.forced.of(m), peers(snap.Encoders, everyone))
		if err != nil {
			return 0, unavailableWorker(err)
		}
		return i, nil
	}
	i := past.pick(snap.Encoders, func(ps []route.Peer) int {
		if rank := route.Rank(string(m.id), ps); len(rank) > 0 {
			return rank[0]
		}
		return -1
	})
	if i >= 0 {
		return i, nil
	}
	if err := snap.need("Encoder", snap.Encoders); err != nil {
		return 0, unavailableWorker(err)
	}
	return 0, errNoneLeft
}

// order asks for one image of a request to be delivered to grants; without any it is encoded for the Store
// alone.
type order struct {
	image  int
	grants []control.Grant
}

// encode has every order carried out, with one call per Encoder.
func (g *Gateway) encode(ctx context.Context, snap *snapshot, req *request, orders []order, past *history) error {
	groups := map[int][]order{} // by Encoder
	for _, o := range orders {
		e, err := pickEncoder(snap, req, req.images[o.image], past)
		if err != nil {
			return err
		}
		groups[e] = append(groups[e], o)
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.EncodeTimeout)
	defer cancel()
	grp, ctx := errgroup.WithContext(ctx)
	for e, orders := range groups {
		// Forced images travel apart: force goes for a whole call.
		for _, forced := range []bool{false, true} {
			var pick []order
			for _, o := range orders {
				if past.force[o.image] == forced {
					pick = append(pick, o)
				}
			}
			if len(pick) > 0 {
				grp.Go(func() error { return g.encodeOn(ctx, snap.Encoders[e], req, pick, forced) })
			}
		}
	}
	return grp.Wait()
}

// encodeCall returns the request of an encode call for the picked orders. Its body has a share of the
// memory that they lie in.
func encodeCall(ctx context.Context, e worker, req *request, pick []order, force bool) (*http.Request, error) {
	head := control.EncodeRequest{Request: req.id, Force: force}
	var files [][]byte
	for _, o := range pick {
		m := req.images[o.image]
		head.Items = append(head.Items, control.EncodeItem{Identifier: m.id, Bytes: len(m.file), Rows: m.geo.Rows, Grants: o.grants})
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
	return hr, nil
}

// encodeOn makes one encode call and files its answers.
func (g *Gateway) encodeOn(ctx context.Context, e worker, req *request, pick []order, force bool) error {
	hr, err := encodeCall(ctx, e, req, pick, force)
	if err != nil {
		return err
	}
	// A call that fails keeps this share: net/http may close its body and still be reading it.
	req.buf.Retain()
	var got control.EncodeResponse
	if err := g.do(hr, e, &got); err != nil {
		// What the caller did wrong, an Encoder says per item. A call that it refuses as a whole is
		// between it and this gateway.
		var answer *workerError
		if errors.As(err, &answer) {
			return &refusedError{url: e.URL, err: err}
		}
		return err
	}
	req.buf.Release()
	if len(got.Items) != len(pick) {
		return nonsense(e, "answered %d items of %d", len(got.Items), len(pick))
	}
	for j, a := range got.Items {
		m := req.images[pick[j].image]
		if a.Error != nil {
			return encodeError(e, req.scan.Media[m.parts[0]], a.Error)
		}
		req.trace.item(m, got.Encoder, a)
		g.metrics.items.WithLabelValues(string(a.Source)).Inc()
	}
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
