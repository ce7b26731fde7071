// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
)

// Targets of bench resolver.
const (
	maxHitUS      = 60   // a hit on loan, of any size
	maxMissUS     = 40   // a full miss
	maxCallUS     = 40   // what a copy may add per call
	maxCopyRatio  = 1.15 // of a memcpy of the same bytes
	maxRedisRatio = 0.1  // from redisFrom bytes on
	redisFrom     = 1 << 20
)

// recomputeSize is the payload that read_or_recompute and hedge are shown with.
const recomputeSize = 1 << 20

// resolverRun measures one size and count.
type resolverRun struct {
	StoreBench
	*storeRig
	name string
	o    *objects
	rows []Row
}

// Resolver measures what a Resolver costs.
func (b StoreBench) Resolver(ctx context.Context) (rep Report, err error) {
	p := newProgress(b.Progress)
	defer p.end()
	p.step("starting a Store")
	rig, err := b.start(ctx)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, rig.stop()) }()
	rep = Report{Name: "resolver", Note: "Store in a process of its own over a unix socket; " + Machine()}
	for _, size := range b.Sizes {
		for _, n := range b.Counts {
			run := &resolverRun{StoreBench: b, storeRig: rig, name: fmt.Sprintf("%dx%s", n, sizeName(size))}
			p.step("%s", run.name)
			if err := run.measure(ctx, n, size); err != nil {
				return rep, err
			}
			rep.Rows = append(rep.Rows, run.rows...)
		}
	}
	loss, err := rig.lossRows(ctx)
	rep.Rows = append(rep.Rows, loss...)
	return rep, err
}

// measure stores the objects, measures, and takes them away.
func (x *resolverRun) measure(ctx context.Context, n, size int) error {
	return x.stored(ctx, "hit", n, size, func() error {
		if err := x.hits(ctx); err != nil || x.Only != "" {
			return err
		}
		if err := x.misses(ctx); err != nil || n > 1 || size != recomputeSize {
			return err
		}
		return x.recompute(ctx)
	})
}

// stored runs do while n objects of one size are in the Store.
func (x *resolverRun) stored(ctx context.Context, prefix string, n, size int, do func() error) (err error) {
	if x.o, err = x.make(prefix, n, size); err != nil {
		return err
	}
	defer x.o.release()
	for i, buf := range x.o.bufs {
		if err := x.lend.Put(ctx, x.o.items[i].Key, buf, store.PutOptions{}); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, x.lend.Remove(ctx, x.o.keys())) }()
	return do()
}

// resolveWay resolves items of which the first want are in the Store.
func (x *resolverRun) resolveWay(ctx context.Context, name string, s *counting, items []resolve.Item, want int) (*way, error) {
	r, err := resolve.New(resolve.Config{Store: s, Protocol: embedding.A1, ReadBufferBytes: 1 << 30, Logger: quietLog})
	if err != nil {
		return nil, err
	}
	results := make([]resolve.Result, len(items))
	w := &way{name: name}
	w.run = func() error { r.ResolveOr(ctx, items, results, nil); return nil }
	w.check = func(all bool) error { return x.verify(items, results, want, all) }
	return w, nil
}

// verify checks headers, and payloads when all, and gives them back.
func (x *resolverRun) verify(items []resolve.Item, results []resolve.Result, want int, all bool) (err error) {
	found := 0
	for i := range results {
		if results[i].Buf == nil {
			continue
		}
		found++
		open := embedding.A1.OpenHead
		if all {
			open = embedding.A1.Open
		}
		_, p, e := open(results[i].Buf.Bytes(), items[i].Key, items[i].Contract)
		if own := x.o.bufs[i].Bytes(); e == nil && all && !bytes.Equal(p, own[len(own)-len(p):]) {
			e = errors.New("other bytes than were stored")
		}
		err = errors.Join(err, e)
		results[i].Buf.Release()
	}
	if found != want {
		err = errors.Join(err, fmt.Errorf("%d of %d found: %v", found, want, results[len(results)-1].Err))
	}
	return err
}

// peerRow compares with redis.
func (x *resolverRun) peerRow(name string, ours, peer *way) {
	switch {
	case peer != nil:
		target := 0.0
		if x.o.bufs[0].Len() >= redisFrom {
			target = maxRedisRatio
		}
		x.rows = append(x.rows, Against(name, "p50 us", ours.p50(), "redis", peer.p50(), target))
	case x.Redis:
		row := Missing(name, "p50 us", x.noRedis)
		row.Peer = "redis"
		x.rows = append(x.rows, row)
	}
}

// misses measures questions about what is not there.
func (x *resolverRun) misses(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	items := make([]resolve.Item, len(x.o.items))
	for i, it := range x.o.items {
		items[i] = it
		items[i].Key += "/absent"
	}
	w, err := x.resolveWay(ctx, "full miss", x.lend, items, 0)
	if err != nil {
		return err
	}
	if err := x.Rounds.measure(ctx, w); err != nil {
		return err
	}
	const runs = 200
	var before, after runtime.MemStats
	calls := x.lend.calls()
	runtime.ReadMemStats(&before)
	for range runs {
		if err := w.run(); err != nil {
			return err
		}
	}
	runtime.ReadMemStats(&after)
	x.rows = append(x.rows,
		Absolute(x.name+" full miss", "p50 us", w.p50(), maxMissUS),
		Absolute(x.name+" full miss", "Store calls", float64(x.lend.calls()-calls)/runs, 1),
		none(x.name+" full miss", "allocations, Store client's included", float64((after.Mallocs-before.Mallocs)/runs)),
	)
	return nil
}
