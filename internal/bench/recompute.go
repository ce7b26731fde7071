// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
)

// encodeTime is what the modelled engine takes for a picture.
const encodeTime = 10 * time.Millisecond

// links are modelled networks before the Store: how long the nth read takes on top.
var links = []struct {
	name  string
	delay func(n int) time.Duration
}{
	{"fast link", func(int) time.Duration { return time.Millisecond }},
	{"slow link", func(int) time.Duration { return 3 * encodeTime }},
	{"fast link, every 12th read late", func(n int) time.Duration {
		if n%12 == 11 {
			return 5 * encodeTime
		}
		return time.Millisecond
	}},
}

// farStore is a Store behind a modelled link.
type farStore struct {
	store.Store
	delay func(n int) time.Duration
	reads atomic.Int64
}

func (f *farStore) Get(ctx context.Context, wants []store.Want) []store.Got {
	if err := pause(ctx, f.delay(int(f.reads.Add(1)))); err != nil {
		gots := make([]store.Got, len(wants))
		for i := range gots {
			gots[i].Err = errors.Join(store.ErrUnavailable, err)
		}
		return gots
	}
	return f.Store.Get(ctx, wants)
}

// recompute shows when reading pays and when encoding does: one image of 1 MiB that is in the Store, over
// modelled links, with an engine that is modelled too.
func (x *resolverRun) recompute(ctx context.Context) error {
	for _, link := range links {
		var base []float64
		for _, mode := range []struct {
			name             string
			recompute, hedge bool
		}{{"always read", false, false}, {"read_or_recompute", true, false}, {"hedge", false, true}, {"both", true, true}} {
			ms, err := x.recomputeWay(ctx, &farStore{Store: x.lend, delay: link.delay}, mode.recompute, mode.hedge)
			if err != nil {
				return err
			}
			if base == nil {
				base = ms
			}
			for _, q := range []struct {
				metric string
				q      float64
			}{{"p50 ms, modelled", 0.5}, {"p95 ms, modelled", 0.95}} {
				x.rows = append(x.rows, Against(link.name+": "+mode.name, q.metric, Quantile(ms, q.q), "always read", Quantile(base, q.q), 0))
			}
		}
	}
	return nil
}

// recomputeWay measures requests for the image.
func (x *resolverRun) recomputeWay(ctx context.Context, far store.Store, recompute, hedge bool) (ms []float64, err error) {
	r, err := resolve.New(resolve.Config{Store: far, Protocol: embedding.A1, ReadOrRecompute: recompute, Hedge: hedge, Logger: quietLog})
	if err != nil {
		return nil, err
	}
	defer r.Wait()
	encode := func(ctx context.Context, i int) (*arena.Buf, embedding.Meta, error) {
		start := time.Now()
		if err := pause(ctx, encodeTime); err != nil {
			return nil, embedding.Meta{}, err
		}
		r.Estimator().ObserveEncode(int64(x.o.metas[i].PayloadBytes()), time.Since(start))
		return x.o.bufs[i].Retain(), x.o.metas[i], nil
	}
	for range 8 { // an Encoder has encoded before it reads
		buf, _, err := encode(ctx, 0)
		if err != nil {
			return nil, err
		}
		buf.Release()
	}
	results := make([]resolve.Result, 1)
	for range x.Rounds.Samples * x.Rounds.Rounds {
		start := time.Now()
		r.ResolveOr(ctx, x.o.items[:1], results, encode)
		buf := results[0].Buf
		if buf == nil {
			if buf, _, err = encode(ctx, 0); err != nil {
				return nil, err
			}
		}
		ms = append(ms, float64(time.Since(start))/float64(time.Millisecond))
		buf.Release()
	}
	return ms, nil
}
