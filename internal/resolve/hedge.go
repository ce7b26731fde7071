// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// got is what became of one item of a chunk: an answer of the Store, or an encode that was faster.
type got struct {
	store.Got
	encoded bool
	meta    embedding.Meta // of an encode
}

func plain(gots []store.Got) []got {
	out := make([]got, len(gots))
	for i, g := range gots {
		out[i].Got = g
	}
	return out
}

// encoding is one encode of a race.
type encoding struct {
	n    int // index in the chunk
	buf  *arena.Buf
	meta embedding.Meta
	err  error
}

// race is a late read against encodes of the same items.
type race struct {
	b       *batch
	out     []got
	settled []bool           // by item
	failed  []bool           // by item: the encode did
	open    int              // items that are not settled
	read    chan []store.Got // one answer
	encodes chan encoding    // one per item
	stops   []context.CancelFunc
	running int // encodes whose end was not seen
}

// hedge reads, and encodes as well once the read is late; each item takes what comes first. The losers
// are cancelled and their memory is given back when they end, in the background.
func (b *batch) hedge(ctx context.Context, ws []wanted, wants []store.Want, total int64, late time.Duration) []got {
	r := b.r
	readCtx, stopRead := context.WithCancel(ctx)
	defer stopRead()
	x := &race{b: b, read: make(chan []store.Got, 1)}
	caller, loans := b.caller, b.loans // b is used again while a loser ends
	r.background.Go(func() {
		start := time.Now()
		gots := r.timed(readCtx, wants, total, loans)
		if readCtx.Err() != nil && caller.Err() == nil {
			// It lost. It took at least this long, and without it only the fast ones would be known.
			r.cfg.Estimator.ObserveRead(total, time.Since(start))
		}
		x.read <- gots
	})
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case gots := <-x.read:
		return plain(gots)
	case <-timer.C:
	}
	r.cfg.Metrics.hedged.Add(float64(len(ws)))
	x.start(b.caller, ws)
	return x.finish()
}

// start begins the encodes.
func (x *race) start(ctx context.Context, ws []wanted) {
	n := len(ws)
	x.out, x.settled, x.failed = make([]got, n), make([]bool, n), make([]bool, n)
	x.encodes, x.open, x.running = make(chan encoding, n), n, n
	encode := x.b.encode
	for n, w := range ws {
		ctx, stop := context.WithCancel(ctx)
		x.stops = append(x.stops, stop)
		x.b.r.background.Go(func() {
			buf, meta, err := encode(ctx, w.i)
			x.encodes <- encoding{n, buf, meta, err}
		})
	}
}

// finish waits until every item has an object, or both its read and its encode have failed.
func (x *race) finish() []got {
	read := x.read
	for x.open > 0 {
		select {
		case e := <-x.encodes:
			x.running--
			x.failed[e.n] = e.err != nil
			switch {
			case x.settled[e.n]:
				if e.buf != nil {
					e.buf.Release()
				}
			case e.err == nil:
				x.settle(e.n, got{Got: store.Got{Buf: e.buf}, encoded: true, meta: e.meta})
				x.b.r.cfg.Metrics.hedgeWon.Inc()
			case read == nil: // the read failed before
				x.settle(e.n, x.out[e.n])
			}
		case gots := <-read:
			read = nil
			x.take(gots)
		}
	}
	x.leave(read)
	return x.out
}

// settle decides item n.
func (x *race) settle(n int, g got) {
	x.out[n], x.settled[n] = g, true
	x.open--
	x.stops[n]()
}

// take uses what was read. Where the read failed, an encode that still runs decides.
func (x *race) take(gots []store.Got) {
	for n, g := range gots {
		switch {
		case x.settled[n]:
			if g.Buf != nil {
				g.Buf.Release()
			}
		case g.Buf != nil || x.failed[n]:
			x.settle(n, got{Got: g})
		default:
			x.out[n].Got = g
		}
	}
}

// leave cancels what still runs; what it brings is given back.
func (x *race) leave(read chan []store.Got) {
	for _, stop := range x.stops {
		stop()
	}
	if running := x.running; running > 0 {
		x.b.r.background.Go(func() {
			for range running {
				if e := <-x.encodes; e.buf != nil {
					e.buf.Release()
				}
			}
		})
	}
	if read != nil {
		x.b.r.background.Go(func() {
			for _, g := range <-read {
				if g.Buf != nil {
					g.Buf.Release()
				}
			}
		})
	}
}
