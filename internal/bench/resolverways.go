// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
)

// firstHit resolves once with a connection that was never used.
func (x *resolverRun) firstHit(ctx context.Context) (float64, error) {
	w, err := x.resolveWay(ctx, "first hit", x.lend, x.o.items, len(x.o.items))
	if err != nil {
		return 0, err
	}
	start := time.Now()
	err = w.run()
	us := float64(time.Since(start)) / float64(time.Microsecond)
	return us, errors.Join(err, w.check(true))
}

// partial has every second object in the Store; of a single one, none is a partial hit.
func (x *resolverRun) partial(ctx context.Context) (*way, error) {
	items := make([]resolve.Item, len(x.o.items))
	want := 0
	for i, it := range x.o.items {
		if items[i] = it; i%2 == 1 {
			items[i].Key += "/absent"
		} else {
			want++
		}
	}
	return x.resolveWay(ctx, "partial hit", x.lend, items, want)
}

// serial resolves the objects one by one.
func (x *resolverRun) serial(ctx context.Context, w *way) error {
	r, err := resolve.New(resolve.Config{Store: x.lend, Protocol: embedding.A1, ReadBufferBytes: 1 << 30, Logger: quietLog})
	if err != nil {
		return err
	}
	results := make([]resolve.Result, len(x.o.items))
	w.run = func() error {
		for i := range x.o.items {
			r.ResolveOr(ctx, x.o.items[i:i+1], results[i:i+1], nil)
		}
		return nil
	}
	w.check = func(all bool) error { return x.verify(x.o.items, results, len(results), all) }
	return nil
}

// copies reads into the own arena by s, which copies what it is lent or has objects streamed. The checksum
// scan has a row of its own.
func (x *resolverRun) copies(ctx context.Context, name string, s *counting) *way {
	keys, wants := x.o.keys(), make([]store.Want, len(x.o.items))
	for i, it := range x.o.items {
		wants[i] = store.Want{Key: it.Key, Bytes: x.o.bufs[i].Len(), Exact: true}
	}
	results := make([]resolve.Result, len(wants))
	w := &way{name: name}
	w.run = func() error {
		for i, g := range s.Get(ctx, wants) {
			if g.Err == nil {
				_, _, g.Err = embedding.A1.OpenHead(g.Buf.Bytes(), keys[i], x.o.items[i].Contract)
			}
			if g.Err != nil {
				return g.Err
			}
			results[i].Buf = g.Buf
		}
		return nil
	}
	w.check = func(all bool) error { return x.verify(x.o.items, results, len(results), all) }
	return w
}

// memory returns a memcpy and a checksum of the same bytes.
func (x *resolverRun) memory() []*way {
	size := x.o.bufs[0].Len()
	memcpy := &way{name: "memcpy"}
	dst := make([][]byte, len(x.o.bufs))
	for i := range dst {
		dst[i] = make([]byte, size)
	}
	memcpy.run = func() error {
		for i, b := range x.o.bufs {
			copy(dst[i], b.Bytes())
		}
		return nil
	}
	sum := &way{name: "checksum"}
	sum.run = func() error {
		for _, b := range x.o.bufs {
			_ = xxh3.Hash(b.Bytes())
		}
		return nil
	}
	return []*way{memcpy, sum}
}

// redisWay stores the same objects with the peer and reads them as a resolver would.
func (x *resolverRun) redisWay() (*way, error) {
	keys, dst := make([]string, len(x.o.items)), make([][]byte, len(x.o.items))
	for i, it := range x.o.items {
		keys[i], dst[i] = string(it.Key), make([]byte, x.o.bufs[i].Len())
		if err := x.redis.set(keys[i], x.o.bufs[i].Bytes()); err != nil {
			return nil, err
		}
	}
	w := &way{name: "redis", run: func() error { return x.redis.resolve(keys, dst) }}
	w.check = func(all bool) error {
		for i, d := range dst {
			if all && !bytes.Equal(d, x.o.bufs[i].Bytes()) {
				return errors.New("other bytes than were stored")
			}
		}
		return nil
	}
	return w, nil
}
