// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// storeHits measures a P/D that takes all embeddings of a request from the Store of its host, by a
// resolver, as a P/D does.
func (b TransportBench) storeHits(ctx context.Context) (rows []Row, err error) {
	s := b.Store
	if s.Binary == "" {
		s.Binary, s.Env = b.Binary, b.Env
	}
	rig, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.stop()) }()
	for _, size := range s.Sizes {
		for _, n := range s.Counts {
			x := &resolverRun{StoreBench: s, storeRig: rig, name: fmt.Sprintf("Store hit, %dx%s", n, sizeName(size))}
			if err := x.toPrefill(ctx, n, size); err != nil {
				return nil, err
			}
			rows = append(rows, x.rows...)
		}
	}
	return rows, nil
}

// toPrefill measures n objects of one size.
func (x *resolverRun) toPrefill(ctx context.Context, n, size int) error {
	return x.stored(ctx, "ready", n, size, func() error { return x.ready(ctx, n) })
}

// ready measures how long it takes until what the Store has is ready for P/D.
func (x *resolverRun) ready(ctx context.Context, n int) error {
	long, cancel := context.WithTimeout(ctx, time.Hour) // spares the resolver its timer
	defer cancel()
	loan, err := x.resolveWay(long, "on loan", x.lend, x.o.items, n)
	if err != nil {
		return err
	}
	copied := x.copies(long, "copied", x.own)
	memcpy, sum := x.memory()
	if err := x.Rounds.measure(ctx, loan, copied, memcpy, sum); err != nil {
		return err
	}
	x.rows = append(x.rows,
		Absolute(x.name+" on loan", "p50 us to ready", loan.p50(), maxReadyUSHit),
		Against(x.name+" copied", "p50 us to ready", copied.p50(), "memcpy", memcpy.p50(), maxStoreRatio),
		Absolute(x.name+", checksum scan", "p50 us", sum.p50(), 0),
	)
	return nil
}
