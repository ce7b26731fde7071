// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"strings"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/vllm/consumer"
)

// Bring has the embeddings of pictures at the consumer, as far as the Store has them. It returns before the deadline of
// its parts, whatever ctx says: what is begun at a consumer is finished or given up in order.
func (r *Relay) Bring(ctx context.Context, at string, pictures []Picture) *Batch {
	start := time.Now()
	b := &Batch{Items: make([]Brought, len(pictures)), r: r, consumer: at}
	if !r.begin() {
		return b
	}
	defer r.calls.Done()
	items := r.plan(pictures, b)
	r.read(ctx, items)
	r.deliver(ctx, at, items, b)
	if again := lost(items); len(again) > 0 {
		r.deliver(ctx, at, again, b)
	}
	for _, it := range items {
		if it.reading != nil {
			r.reader.giveBack(it.reading)
		}
		for _, i := range it.at {
			out := &b.Items[i]
			if it.err != nil {
				out.Result = resultOf(it.err)
				continue
			}
			out.Transfer, out.Result = it.id.Text, Result(it.how)
		}
	}
	for _, it := range b.Items {
		r.metrics.items.WithLabelValues(string(it.Result)).Inc()
	}
	r.metrics.seconds.Observe(time.Since(start).Seconds())
	return b
}

// plan names the pictures, and puts equal ones together.
func (r *Relay) plan(pictures []Picture, b *Batch) []*item {
	var items []*item
	byHash := map[string]*item{}
	names, era := r.learned.namespace()
	b.era = era
	for i, p := range pictures {
		out := &b.Items[i]
		out.Result = Unknown
		if names == (embedding.Namespace{}) {
			continue
		}
		hash, ok := r.learned.hash(p)
		if !ok {
			continue
		}
		if out.Grid, ok = r.learned.grid(p.Shape); !ok {
			continue
		}
		out.Hash = hash
		it := byHash[hash]
		switch {
		case it == nil:
			it = &item{want: wanted(names, era, hash, out.Grid)}
			byHash[hash] = it
			items = append(items, it)
		case it.grid != out.Grid:
			continue // one name, two sizes: somebody is wrong
		}
		it.at = append(it.at, i)
	}
	return items
}

// wanted is the object of a picture that the engine calls hash, in an era of what was learned.
func wanted(names embedding.Namespace, era int, hash string, g Grid) want {
	return want{key: names.Key(embedding.Identifier(hash)), dtype: names.DType, era: era, hash: hash, grid: g}
}

// read reads what the consumer is not thought to have already.
func (r *Relay) read(ctx context.Context, items []*item) {
	_, framed := r.learned.known()
	var wants []want
	var of []*item
	for _, it := range items {
		if framed && r.recent.has(it.hash) {
			continue
		}
		wants, of = append(wants, it.want), append(of, it)
	}
	if len(wants) == 0 {
		return
	}
	for i, o := range r.reader.get(ctx, wants) {
		of[i].reading, of[i].err = o, o.err
	}
}

// deliver brings to the consumer what was read, and what it may have.
func (r *Relay) deliver(ctx context.Context, at string, all []*item, b *Batch) {
	frame, ok := r.learned.knownIn(b.era)
	var sent []*item
	var deliveries []consumer.Item
	for _, it := range all {
		if it.err != nil {
			continue
		}
		if !ok {
			it.err = errUnknown
			continue
		}
		var d consumer.Item
		if d, it.err = r.delivery(at, frame, it); it.err != nil {
			continue
		}
		b.ids = append(b.ids, it.id)
		sent = append(sent, it)
		deliveries = append(deliveries, d)
	}
	if len(sent) == 0 {
		return
	}
	for i, o := range r.cfg.Consumers.Deliver(ctx, at, deliveries) {
		it := sent[i]
		if it.how, it.err = o.How, o.Err; o.Err != nil {
			r.recent.drop(it.hash)
			if errors.Is(o.Err, consumer.ErrUnsettled) {
				b.keep(it.id)
			}
			r.cfg.Logger.Debug("not delivered", "consumer", at, "hash", it.hash, "cause", o.Err)
			continue
		}
		r.recent.put(it.hash)
		if o.How == consumer.Written {
			r.metrics.bytes.Add(float64(deliveries[i].Bytes()))
		}
	}
}

// delivery is what the consumer gets of an item, under an id that is taken for it.
func (r *Relay) delivery(at string, frame Frame, it *item) (d consumer.Item, err error) {
	c, err := frame.contract(it.grid, it.dtype)
	if err != nil {
		return d, err
	}
	if it.id, err = r.ids.take(at); err != nil {
		return d, err
	}
	return consumer.Item{
		Transfer: it.id.Text, Hash: it.hash, Rows: c.Rows, Cols: c.Cols, DType: strings.TrimPrefix(c.DType.String(), "torch."), Size: c.DType.Bytes(),
		Payload: func(ctx context.Context) ([]byte, error) { return r.payload(ctx, it) },
	}, nil
}

// lost returns the items whose other writer gave up, ready for a try of their own.
func lost(items []*item) (again []*item) {
	for _, it := range items {
		if errors.Is(it.err, consumer.ErrLost) {
			it.err = nil
			again = append(again, it)
		}
	}
	return again
}

// payload returns the values of it, which it reads if that was put off. No two goroutines call it for one item.
func (r *Relay) payload(ctx context.Context, it *item) ([]byte, error) {
	if it.reading == nil {
		it.reading = r.reader.get(ctx, []want{it.want})[0]
	}
	if it.reading.err != nil {
		return nil, it.reading.err
	}
	return it.reading.payload(), nil
}
