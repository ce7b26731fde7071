// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
	"afterimage/internal/store/ram"
)

// hits measures full and partial hits: on loan, one by one, as copies, and the peer's.
func (x *resolverRun) hits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // spares the resolver its timer
	defer cancel()
	var peer *way
	if x.redis != nil && x.Only != OnlySerial {
		var err error
		if peer, err = x.redisWay(); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name    Only
		measure func(context.Context, *way) error
	}{{"", x.loans}, {OnlySerial, x.serials}, {OnlyCopy, x.copyHits}} {
		if x.Only != "" && x.Only != part.name {
			continue
		}
		if err := part.measure(ctx, peer); err != nil {
			return err
		}
	}
	return nil
}

// loans measures full and partial hits on loan.
func (x *resolverRun) loans(ctx context.Context, peer *way) error {
	loan, err := x.resolveWay(ctx, "full hit", x.lend, x.o.items, len(x.o.items))
	if err != nil {
		return err
	}
	partial, err := x.partial(ctx)
	if err != nil {
		return err
	}
	_, sum := x.memory()
	ways := []*way{loan, partial, sum}
	if peer != nil {
		ways = append(ways, peer)
	}
	if err := x.Rounds.measure(ctx, ways...); err != nil {
		return err
	}
	x.rows = append(x.rows,
		Absolute(x.name+" full hit on loan", "p50 us", loan.p50(), maxHitUS),
		Absolute(x.name+" checksum scan", "p50 us", sum.p50(), 0),
		Absolute(x.name+" partial hit", "p50 us", partial.p50(), 0),
	)
	x.peerRow(x.name+" full hit on loan", loan, peer)
	return nil
}

// serials compares one request for all objects with one for each, and with the first after start.
func (x *resolverRun) serials(ctx context.Context, _ *way) error {
	first, shown, err := x.firstHit(ctx)
	if err != nil {
		return err
	}
	batch, err := x.resolveWay(ctx, "batch", x.lend, x.o.items, len(x.o.items))
	if err != nil {
		return err
	}
	serial, err := x.serial(ctx)
	if err != nil {
		return err
	}
	if err := x.Rounds.measure(ctx, batch, serial); err != nil {
		return err
	}
	x.rows = append(x.rows,
		Against(x.name+" full hit, batch", "p50 us", batch.p50(), "serial", serial.p50(), 0),
		Absolute(x.name+" full hit, first after start, connecting included", "us", first, 0),
		Absolute(x.name+" full hit, first after start", "registrations", float64(shown), 0))
	for _, w := range []*way{batch, serial} {
		calls, registrations, err := x.perRequest(w)
		if err != nil {
			return err
		}
		x.rows = append(x.rows,
			Absolute(x.name+" full hit, "+w.name, "native calls", calls, 0),
			none(x.name+" full hit, "+w.name, "registrations", registrations))
	}
	return nil
}

// perRequest counts what one run of w asks of the Store.
func (x *resolverRun) perRequest(w *way) (calls, registrations float64, err error) {
	c, r := x.lend.calls(), x.lend.registrations()
	if err := w.run(); err != nil {
		return 0, 0, err
	}
	calls, registrations = float64(x.lend.calls()-c), float64(x.lend.registrations()-r)
	return calls, registrations, w.check(true)
}

// copyHits measures hits that are copied into the own arena, by this process and through the socket.
func (x *resolverRun) copyHits(ctx context.Context, peer *way) error {
	copied, streamed := x.copies(ctx, "copy", x.own), x.copies(ctx, "streamed copy", x.copy)
	memcpy, _ := x.memory()
	ways := []*way{memcpy, copied, streamed}
	if peer != nil && x.Only != "" { // else it was measured beside the loans
		ways = append(ways, peer)
	}
	if err := x.Rounds.measure(ctx, ways...); err != nil {
		return err
	}
	x.rows = append(x.rows,
		Absolute(x.name+" copy into own arena", "p50 us", copied.p50(), maxCallUS+maxCopyRatio*memcpy.p50()),
		Absolute(x.name+" copy through the socket", "p50 us", streamed.p50(), 0),
		Absolute(x.name+" memcpy", "p50 us", memcpy.p50(), 0))
	if peer != nil {
		x.rows = append(x.rows, Against(x.name+" copy into own arena", "p50 us", copied.p50(), "redis", peer.p50(), 0))
	}
	return nil
}

// firstHit resolves once with a client of its own, from before it connects, and says how often that showed
// its memory to the Store.
func (x *resolverRun) firstHit(ctx context.Context) (us float64, shown int64, err error) {
	start := time.Now()
	s, err := x.dial(ctx, ram.ClientConfig{})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Store.Close()) }()
	w, err := x.resolveWay(ctx, "first hit", s, x.o.items, len(x.o.items))
	if err != nil {
		return 0, 0, err
	}
	err = w.run()
	us = float64(time.Since(start)) / float64(time.Microsecond)
	return us, s.registrations(), errors.Join(err, w.check(true))
}

// partial asks for objects of which every second is in the Store; of a single one, for one more.
func (x *resolverRun) partial(ctx context.Context) (*way, error) {
	items := append([]resolve.Item(nil), x.o.items...)
	if len(items) == 1 {
		items = append(items, items[0])
	}
	want := 0
	for i := range items {
		if i%2 == 1 {
			items[i].Key += "/absent"
		} else {
			want++
		}
	}
	return x.resolveWay(ctx, "partial hit", x.lend, items, want)
}

// serial resolves the objects one by one.
func (x *resolverRun) serial(ctx context.Context) (*way, error) {
	r, err := resolve.New(resolve.Config{Store: x.lend, Protocol: embedding.A1, ReadBufferBytes: 1 << 30, Logger: quietLog})
	if err != nil {
		return nil, err
	}
	results := make([]resolve.Result, len(x.o.items))
	w := &way{name: "serial"}
	w.run = func() error {
		for i := range x.o.items {
			r.ResolveOr(ctx, x.o.items[i:i+1], results[i:i+1], nil)
		}
		return nil
	}
	w.check = func(all bool) error { return x.verify(x.o.items, results, len(results), all) }
	return w, nil
}
