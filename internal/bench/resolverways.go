// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"

	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
)

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
func (x *resolverRun) memory() (memcpy, sum *way) {
	size := x.o.bufs[0].Len()
	memcpy = &way{name: "memcpy"}
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
	sum = &way{name: "checksum"}
	sum.run = func() error {
		for _, b := range x.o.bufs {
			_ = xxh3.Hash(b.Bytes())
		}
		return nil
	}
	return memcpy, sum
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
