// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"context"
	"errors"

	"afterimage/internal/control"
	"afterimage/internal/transport"
)

// keep has the Store take an object that is wanted there and nowhere else. What was made just now may
// have been dropped for want of room in the queue or as a first sighting, and what was in the cache may
// have left the Store: so the queue is let run empty, and the object offered once more.
func (e *Encoder) keep(ctx context.Context, it *item) error {
	if it.source == control.SourceStore {
		return nil
	}
	err := e.cfg.Publisher.Flush(ctx)
	if err == nil {
		e.cfg.Publisher.PublishFor(it.tenant, it.key, it.buf, e.meta(it))
		err = e.cfg.Publisher.Flush(ctx)
	}
	if err != nil {
		return &deliveryError{err}
	}
	return nil
}

// deliver sends the object to every grant at once; one that fails holds none of the others.
func (e *Encoder) deliver(ctx context.Context, it *item) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.DeliverTimeout)
	defer cancel()
	if len(it.req.Grants) == 0 {
		return e.keep(ctx, it)
	}
	parcel, err := e.parcel(it)
	if err != nil {
		return &deliveryError{err}
	}
	defer parcel.Release()
	errs := make(chan error, len(it.req.Grants))
	for _, g := range it.req.Grants {
		go func() { errs <- e.cfg.Sender.Send(ctx, g, parcel) }()
	}
	var first error
	for range it.req.Grants {
		if err := <-errs; err != nil {
			e.metrics.deliver.WithLabelValues("failed").Inc()
			if errors.Is(err, transport.ErrRejected) { // its bytes are not what they were
				e.cfg.Cache.Remove(it.key)
			}
			if first == nil {
				first = &deliveryError{err}
			}
			continue
		}
		e.metrics.deliver.WithLabelValues("confirmed").Inc()
	}
	return first
}
