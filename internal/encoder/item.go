// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/resolve"
)

// item is one image of a call on its way through the Encoder.
type item struct {
	req    control.EncodeItem
	tenant string
	file   []byte
	layout embedding.Layout
	key    embedding.Key

	buf      *arena.Buf // the sealed object; one reference is the item's
	source   control.Source
	queued   atomic.Int64 // time before the engine took it, maybe on a run that lost a hedge
	shared   atomic.Value // control.Source of an encode that a hedge made
	resolved time.Duration
	done     time.Duration
	err      error
}

// inspect reads the file's header and derives the layout, hence the contract.
func (e *Encoder) inspect(ctx context.Context, it *item) error {
	info, err := media.Inspect(it.file, e.cfg.Limits)
	if err != nil {
		return err
	}
	width, height := info.Size(e.spec.Processing)
	if it.layout, err = e.layout(ctx, width, height); err != nil {
		return err
	}
	if got := it.layout.Rows(); it.req.Rows != 0 && it.req.Rows != got {
		return fmt.Errorf("a picture of %dx%d has %d rows here, the gateway expects %d: its geometry is of another Encoder",
			width, height, got, it.req.Rows)
	}
	it.key = e.cfg.Namespace.Key(it.req.Identifier)
	return nil
}

// resolve asks the cache and the Store for all items that are still open, in one batch.
func (e *Encoder) resolve(ctx context.Context, items []*item) {
	var open []*item
	var wants []resolve.Item
	for _, it := range items {
		if it.err == nil {
			open = append(open, it)
			wants = append(wants, resolve.Item{Key: it.key, Contract: e.contract(it.layout), Tenant: it.tenant,
				Bytes: e.format().ObjectBytes(it.layout, e.spec.Cols, e.cfg.Namespace.DType)})
		}
	}
	if len(open) == 0 {
		return
	}
	results := make([]resolve.Result, len(wants))
	e.cfg.Resolver.ResolveOr(ctx, wants, results, func(ctx context.Context, i int) (*arena.Buf, embedding.Meta, error) {
		it := open[i]
		buf, source, err := e.share(ctx, it)
		it.shared.Store(source)
		return buf, e.meta(it), err
	})
	for i, r := range results {
		if r.Buf != nil {
			open[i].buf, open[i].source = r.Buf, r.Source
			if r.Source == control.SourceEncoded {
				open[i].source = open[i].shared.Load().(control.Source)
			}
			e.relayout(open[i])
		}
	}
}

// meta describes an item's object in the cache and the Store.
func (e *Encoder) meta(it *item) embedding.Meta {
	return embedding.Meta{Rows: it.layout.Rows(), Cols: e.spec.Cols, DType: e.cfg.Namespace.DType, Layout: it.layout}
}

// encode computes an object for an item that was found nowhere.
func (e *Encoder) encode(ctx context.Context, it *item) error {
	buf, source, err := e.share(ctx, it)
	if err != nil {
		return err
	}
	it.buf, it.source = buf, source
	return nil
}

// share computes an item's object, or shares the run of an equal one that is in flight, and says which. The
// caller owns one reference of the result.
func (e *Encoder) share(ctx context.Context, it *item) (*arena.Buf, control.Source, error) {
	source := control.SourceEncoded
	buf, led, err := e.flights.Do(ctx, it.key, func(ctx context.Context) (*arena.Buf, error) {
		// Another flight may have ended between this item's look-up and its turn.
		if buf, _, ok := e.cfg.Cache.Get(it.key); ok {
			source = control.SourceLocal
			return buf, nil
		}
		return e.produce(ctx, it)
	})
	if err == nil && !led {
		e.metrics.joined.Inc()
		source = control.SourceJoined
	}
	return buf, source, err
}

// produce queues for the engine, then decodes and encodes one picture into a fresh object, caches it and
// offers it to the Store. The caller owns one reference of the result.
func (e *Encoder) produce(ctx context.Context, it *item) (*arena.Buf, error) {
	if e.waiting.Add(1) > int64(e.cfg.MaxQueue) {
		e.waiting.Add(-1)
		e.metrics.refused.Inc()
		return nil, errQueueFull
	}
	queued := sync.OnceFunc(func() { e.waiting.Add(-1) })
	defer queued()
	asked := time.Now()
	if err := acquire(ctx, e.ready); err != nil {
		return nil, err
	}
	defer func() { <-e.ready }()
	px, err := media.Decode(ctx, it.file, e.spec.Processing, e.cfg.Limits)
	if err != nil {
		return nil, err
	}
	if err := acquire(ctx, e.engine); err != nil {
		return nil, err
	}
	defer func() { <-e.engine }()
	queued()
	it.queued.Store(int64(time.Since(asked)))
	e.metrics.queue.Observe(time.Since(asked).Seconds())
	return e.run(ctx, it, px, asked)
}

// acquire puts a token into c, or returns why ctx ended.
func acquire(ctx context.Context, c chan struct{}) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run encodes px into a sealed object. Once begun it does not end with ctx: the work is nearly all
// spent when the native call returns, and the result serves whoever asks next. asked is when the picture
// began to queue.
func (e *Encoder) run(ctx context.Context, it *item, px media.Pixels, asked time.Time) (*arena.Buf, error) {
	e.running.Add(1)
	defer e.running.Add(-1)
	buf, payload, err := e.room(it)
	if err != nil {
		return nil, err
	}
	defer buf.Abort() // of what the engine wrote into, unless that is committed
	start := time.Now()
	end := e.call.begin()
	err = e.cfg.Engine.Encode(context.WithoutCancel(ctx), px, payload)
	end()
	if err != nil {
		return nil, err
	}
	e.metrics.encode.Observe(time.Since(start).Seconds())
	e.metrics.encodes.Inc()
	e.cfg.Resolver.Estimator().ObserveEncode(int64(len(payload)), time.Since(asked))
	meta := e.meta(it)
	if e.converts() {
		buf, err = e.seal(e.format(), it, meta, payload, e.spec.DType)
	} else if err = e.format().Seal(buf.Bytes(), it.key, meta); err == nil {
		buf.Commit()
	}
	if err != nil {
		return nil, err
	}
	e.cfg.Cache.Put(it.key, buf, meta)
	e.cfg.Publisher.PublishFor(it.tenant, it.key, buf, meta)
	return buf, nil
}

// reserve takes room in the arena, at the expense of the cache when there is none.
func (e *Encoder) reserve(n int) (*arena.Buf, error) {
	buf, err := e.cfg.Arena.Reserve(n)
	if err == nil || e.cfg.Cache.Evict(int64(n)) == 0 {
		return buf, err
	}
	return e.cfg.Arena.Reserve(n)
}
