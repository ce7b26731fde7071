// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// read gets one chunk. What a second try can mend is tried once more: a lease that ran out, and, after
// the cache made room, objects that the arena had none for.
func (b *batch) read(ctx context.Context, ws []wanted) {
	again, full := b.readOnce(ctx, ws)
	if full > 0 && (b.r.cfg.Cache == nil || b.r.cfg.Cache.Evict(full) == 0) {
		kept := again[:0]
		for _, w := range again {
			if b.results[w.i].Reason != NoMemory {
				kept = append(kept, w)
			}
		}
		again = kept
	}
	if len(again) > 0 {
		b.readOnce(ctx, again)
	}
}

// readOnce returns the items for which a second try makes sense, marked as failed all the same, and
// how many bytes of memory they lacked.
func (b *batch) readOnce(ctx context.Context, ws []wanted) (again []wanted, full int64) {
	for n, got := range b.get(ctx, ws) {
		w := ws[n]
		switch {
		case got.encoded:
			b.results[w.i] = Result{Buf: got.Buf, Meta: got.meta, Source: control.SourceEncoded}
		case got.Err == nil:
			b.accept(w.i, got.Buf)
		default:
			b.fail(w.i, got.Err)
			if errors.Is(got.Err, arena.ErrFull) {
				again, full = append(again, w), full+int64(w.want.Bytes)
			} else if errors.Is(got.Err, store.ErrExpired) {
				again = append(again, w)
			}
		}
	}
	return again, full
}

// get makes one Store call for ws, or races it against encodes.
func (b *batch) get(ctx context.Context, ws []wanted) []got {
	wants, total := make([]store.Want, len(ws)), int64(0)
	for n, w := range ws {
		wants[n] = w.want
		total += int64(w.want.Bytes)
	}
	if b.r.cfg.Hedge && b.encode != nil {
		if late, ok := b.r.cfg.Estimator.late(total); ok {
			return b.hedge(ctx, ws, wants, total, late)
		}
	}
	return plain(b.r.timed(ctx, wants, total, b.loans))
}

// timed makes one Store call once there is room for total bytes in the read buffer, which all reads share
// and loans do not need, and learns from it how long reads take.
func (r *Resolver) timed(ctx context.Context, wants []store.Want, total int64, loans bool) []store.Got {
	if !loans {
		if err := r.reading.Acquire(ctx, total); err != nil {
			return noTurn(len(wants), err)
		}
		defer r.reading.Release(total)
		r.cfg.Metrics.reading.Add(float64(total))
		defer r.cfg.Metrics.reading.Sub(float64(total))
	}
	start := time.Now()
	gots := r.cfg.Store.Get(ctx, wants)
	for _, g := range gots {
		if g.Err != nil {
			return gots // a fault says nothing about the speed
		}
	}
	r.cfg.Estimator.ObserveRead(total, time.Since(start))
	return gots
}

// noTurn answers n wants of a call that was not made, since others read until ctx ended.
func noTurn(n int, err error) []store.Got {
	gots := make([]store.Got, n)
	for i := range gots {
		gots[i].Err = fmt.Errorf("%w: other reads fill store_read_buffer_bytes: %w", store.ErrUnavailable, err)
	}
	return gots
}

// accept checks an object and keeps it. It takes over the reference. A copy is summed; an object on loan
// was when the Store took it, cannot change since, and is summed again by whoever scans its values.
func (b *batch) accept(i int, buf *arena.Buf) {
	it := b.items[i]
	open := embedding.Protocol.Open
	if buf.Foreign() {
		open = embedding.Protocol.OpenHead
	}
	meta, _, err := open(b.r.cfg.Protocol, buf.Bytes(), it.Key, it.Contract)
	if err != nil {
		buf.Release()
		b.drop(i, err)
		return
	}
	b.results[i] = Result{Buf: buf, Meta: meta, Source: control.SourceStore}
	b.r.cfg.Metrics.bytes.Add(float64(buf.Len()))
	if b.r.cfg.Cache != nil {
		b.r.cfg.Cache.Put(it.Key, buf, meta)
	}
}

// drop marks an item whose object is wrong, and the object for removal.
func (b *batch) drop(i int, err error) {
	b.results[i] = Result{Reason: reasonOf(err), Err: err}
	b.wrong = append(b.wrong, b.items[i].Key)
}

// fail marks an item that the Store did not give.
func (b *batch) fail(i int, err error) {
	b.results[i] = Result{Reason: reasonOf(err), Err: err}
	if b.unasked && b.results[i].Reason == Absent {
		b.results[i].Err = nil // it was never said to be there
	}
	if r := b.results[i].Reason; r != Absent && r != NoMemory && r != Expired && r != Distrusted {
		b.fault = err
	}
}
