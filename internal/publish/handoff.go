// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"

	"afterimage/internal/cache"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// HandOff stores what a worker that leaves has in its cache and the Store lacks, until ctx ends: first what
// was published and is not stored yet, then the objects in their order, whatever the admission. It takes over
// the references of objects and returns how many are in the Store by its doing. They count for no tenant.
func (p *Publisher) HandOff(ctx context.Context, objects []cache.Object) (stored int) {
	defer func() {
		for _, o := range objects {
			o.Buf.Release()
		}
	}()
	if p.cfg.Store == nil || p.Flush(ctx) != nil {
		return 0
	}
	for _, o := range p.lacking(ctx, objects) {
		if ctx.Err() != nil || p.Err() != nil {
			return stored
		}
		err := p.fit(&job{key: o.Key, buf: o.Buf, meta: o.Meta})
		if err == nil {
			err = p.ended(p.cfg.Store.Put(ctx, o.Key, o.Buf, store.PutOptions{TTL: p.cfg.TTL}))
		}
		p.cfg.Metrics.count(outcomeOf(err))
		if err == nil {
			stored++
		}
	}
	return stored
}

// lacking returns those of objects that are in the Store's format, and that it does not have.
func (p *Publisher) lacking(ctx context.Context, objects []cache.Object) (out []cache.Object) {
	var ours []cache.Object
	var keys []embedding.Key
	for _, o := range objects {
		if embedding.ProtocolOf(o.Key) == p.cfg.Protocol {
			ours, keys = append(ours, o), append(keys, o.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	states, err := p.cfg.Store.Exists(ctx, keys)
	if err == nil && len(states) != len(keys) {
		err = fmt.Errorf("%w: %d answers to %d keys", store.ErrUnavailable, len(states), len(keys))
	}
	if err != nil {
		p.cfg.Logger.Warn("publish: nothing is handed off", "objects", len(keys), "error", err)
		return nil
	}
	for i, st := range states {
		if !st.Present {
			out = append(out, ours[i])
		}
	}
	return out
}
