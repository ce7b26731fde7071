// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
	"afterimage/internal/publish"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
)

// Targets of bench publish.
const (
	maxPutUS    = 40   // what a PUT may add per object
	maxPutRatio = 1.15 // of a memcpy and a checksum of the same bytes
)

// Publish measures what PUTs cost, and what a request pays for a publication.
func (b StoreBench) Publish(ctx context.Context) (rep Report, err error) {
	p := newProgress(b.Progress)
	defer p.end()
	p.step("starting a Store")
	rig, err := b.start(ctx)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, rig.stop()) }()
	rep = Report{Name: "publish", Note: "Store in a process of its own over a unix socket; " + Machine()}
	for _, size := range b.Sizes {
		for _, n := range b.Counts {
			x := &publishRun{StoreBench: b, storeRig: rig, name: fmt.Sprintf("%dx%s", n, sizeName(size))}
			p.step("%s", x.name)
			if err := x.measure(ctx, n, size); err != nil {
				return rep, err
			}
			rep.Rows = append(rep.Rows, x.rows...)
		}
	}
	p.step("seeding")
	seeding, err := b.Seeding.seed(ctx, rig)
	if err != nil {
		return rep, err
	}
	rep.Rows = append(rep.Rows, seeding...)
	loss, err := rig.lossRows(ctx)
	rep.Rows = append(rep.Rows, loss...)
	return rep, err
}

// publishRun measures one size and count.
type publishRun struct {
	StoreBench
	*storeRig
	name string
	o    *objects
	rows []Row
}

func (x *publishRun) measure(ctx context.Context, n, size int) (err error) {
	if x.o, err = x.make("put", n, size); err != nil {
		return err
	}
	defer x.o.release()
	pub, err := publish.New(publish.Config{Store: x.lend, Protocol: embedding.A1, Logger: quietLog})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pub.Close(ctx)) }()
	stored := func(all bool) error { return x.stored(ctx, all) }
	put := &way{name: "PUT", run: func() error { return x.puts(ctx) }, check: stored}
	batch := &way{name: "PUT in one call", run: func() error { return x.putAll(ctx) }, check: stored}
	// What the request pays, and what it takes until the objects are there.
	call := &way{name: "publish", run: func() error { x.publish(pub); return nil }}
	call.check = func(all bool) error { return errors.Join(pub.Flush(ctx), x.stored(ctx, all)) }
	whole := &way{name: "publish and flush", run: func() error { x.publish(pub); return pub.Flush(ctx) }, check: stored}
	base, each := x.baseline(), x.each(ctx)
	ways := []*way{base, put, batch, call, whole, each}
	var peer *way
	if x.redis != nil {
		peer = &way{name: "redis SET", run: x.sets, check: x.redisTidy}
		ways = append(ways, peer)
	}
	shown := x.lend.registrations()
	if err := x.Rounds.measure(ctx, ways...); err != nil {
		return err
	}
	x.rows = append(x.rows,
		Absolute(x.name+" PUT", "p50 us", put.p50(), float64(n)*maxPutUS+maxPutRatio*base.p50()),
		Against(x.name+" PUT", "p50 us", put.p50(), "memcpy+checksum", base.p50(), 0),
		Absolute(x.name+" Publish, as the request pays", "p50 us", call.p50(), 0),
		Absolute(x.name+" Publish until stored", "p50 us", whole.p50(), 0),
		none(x.name+" PUT", "registrations, of all runs", float64(x.lend.registrations()-shown)),
		Against(x.name+" PUT", "p50 us", put.p50(), "memory shown for each", each.p50(), 0),
	)
	if n > 1 {
		x.rows = append(x.rows, Against(x.name+" PUT, in one call", "p50 us", batch.p50(), "one by one", put.p50(), 0))
	}
	x.peerRow(put, peer)
	return nil
}

func (x *publishRun) peerRow(put, peer *way) {
	if peer != nil {
		x.rows = append(x.rows, Against(x.name+" PUT", "p50 us", put.p50(), "redis", peer.p50(), 0))
	} else if x.Redis {
		row := Missing(x.name+" PUT", "p50 us", x.noRedis)
		row.Peer = "redis"
		x.rows = append(x.rows, row)
	}
}

func (x *publishRun) putAll(ctx context.Context) error {
	puts := make([]store.Putting, len(x.o.bufs))
	for i, b := range x.o.bufs {
		puts[i] = store.Putting{Key: x.o.items[i].Key, Buf: b}
	}
	return errors.Join(x.lend.PutAll(ctx, puts)...)
}

func (x *publishRun) puts(ctx context.Context) error {
	for i, b := range x.o.bufs {
		if err := x.lend.Put(ctx, x.o.items[i].Key, b, store.PutOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// each connects and shows its memory for every PUT, as a Store does that registers what it is given.
func (x *publishRun) each(ctx context.Context) *way {
	one := func(i int) error {
		s, err := x.dial(ctx, ram.ClientConfig{})
		if err != nil {
			return err
		}
		err = s.Put(ctx, x.o.items[i].Key, x.o.bufs[i], store.PutOptions{})
		return errors.Join(err, s.Store.Close())
	}
	w := &way{name: "PUT, memory shown for each", check: func(all bool) error { return x.stored(ctx, all) }}
	w.run = func() error {
		for i := range x.o.bufs {
			if err := one(i); err != nil {
				return err
			}
		}
		return nil
	}
	return w
}

func (x *publishRun) publish(p *publish.Publisher) {
	for i, b := range x.o.bufs {
		p.Publish(x.o.items[i].Key, b, x.o.metas[i])
	}
}

// stored checks that the Store has all, byte by byte when asked, and takes it away again. Its memory stays
// faulted in. Most checks take no loan: one that is on its way back would keep the next PUT off the memory
// of this one.
func (x *publishRun) stored(ctx context.Context, all bool) error {
	var err error
	if all {
		err = x.same(ctx)
	} else {
		err = x.present(ctx)
	}
	return errors.Join(err, x.lend.Remove(ctx, x.o.keys()))
}

// present checks that the Store has all, by size.
func (x *publishRun) present(ctx context.Context) error {
	states, err := x.lend.Exists(ctx, x.o.keys())
	if err != nil {
		return err
	}
	for i, st := range states {
		if want := int64(x.o.bufs[i].Len()); !st.Present || st.Bytes != want {
			return fmt.Errorf("the Store has %d bytes of object %d, want %d", st.Bytes, i, want)
		}
	}
	return nil
}

// same checks that the Store has all, byte by byte.
func (x *publishRun) same(ctx context.Context) (err error) {
	wants := make([]store.Want, len(x.o.items))
	for i, it := range x.o.items {
		wants[i] = store.Want{Key: it.Key, Bytes: x.o.bufs[i].Len(), Exact: true}
	}
	for i, g := range x.lend.Get(ctx, wants) {
		if g.Err != nil {
			err = errors.Join(err, g.Err)
			continue
		}
		if !bytes.Equal(g.Buf.Bytes(), x.o.bufs[i].Bytes()) {
			err = errors.Join(err, errors.New("other bytes than were put"))
		}
		g.Buf.Release()
	}
	return err
}

// baseline copies the same bytes and sums the copy.
func (x *publishRun) baseline() *way {
	dst := make([][]byte, len(x.o.bufs))
	for i, b := range x.o.bufs {
		dst[i] = make([]byte, b.Len())
	}
	return &way{name: "memcpy and checksum", run: func() error {
		for i, b := range x.o.bufs {
			copy(dst[i], b.Bytes())
			_ = xxh3.Hash(dst[i])
		}
		return nil
	}}
}

func (x *publishRun) sets() error {
	for i, b := range x.o.bufs {
		if err := x.redis.set(string(x.o.items[i].Key), b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// redisTidy takes the objects away again; SET of a key that is there would measure something else.
func (x *publishRun) redisTidy(bool) error {
	for _, it := range x.o.items {
		if err := x.redis.del(string(it.Key)); err != nil {
			return err
		}
	}
	return nil
}
