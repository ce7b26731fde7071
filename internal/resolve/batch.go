// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"fmt"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// batch is the Store's part of one Resolve.
type batch struct {
	r       *Resolver
	items   []Item
	results []Result
	wrong   []embedding.Key // objects to remove
	fault   error           // the last error of the Store that was no miss
}

// wanted is an item that the Store has.
type wanted struct {
	i    int // index of the item
	want store.Want
}

// ask finds out which items the Store has, in one question.
func (b *batch) ask(ctx context.Context, missing []int) []wanted {
	keys := make([]embedding.Key, len(missing))
	for n, i := range missing {
		keys[n] = b.items[i].Key
	}
	states, err := b.r.cfg.Store.Exists(ctx, keys)
	if err == nil && len(states) != len(keys) {
		err = fmt.Errorf("%w: %d answers to %d keys", store.ErrUnavailable, len(states), len(keys))
	}
	if err != nil {
		for _, i := range missing {
			b.fail(i, err)
		}
		return nil
	}
	var out []wanted
	for n, i := range missing {
		if !states[n].Present {
			b.results[i].Reason = Absent
		} else if w, ok := b.plan(i, states[n].Bytes); ok {
			out = append(out, w)
		}
	}
	return out
}

// plan decides from the size of an object whether it is worth reading. Where the Store does not tell
// the size, the most that the contract allows is assumed.
func (b *batch) plan(i int, size int64) (wanted, bool) {
	least, most := sizes(b.r.cfg.Protocol, b.items[i].Contract)
	w := wanted{i: i, want: store.Want{Key: b.items[i].Key, Bytes: int(most), Exact: least == most}}
	if size > 0 {
		if size < least || size > most {
			b.drop(i, fmt.Errorf("%w: %d bytes, want %d to %d", embedding.ErrContract, size, least, most))
			return w, false
		}
		w.want.Bytes, w.want.Exact = int(size), true
	}
	if int64(w.want.Bytes) > b.r.cfg.ReadBufferBytes {
		b.results[i].Reason = Oversize
		b.results[i].Err = fmt.Errorf("resolve: object of %d bytes exceeds store_read_buffer_bytes (%d)", w.want.Bytes, b.r.cfg.ReadBufferBytes)
		return w, false
	}
	return w, true
}

// layoutRowBytes is more than a layout takes up per row, positions and tokens included; layoutBytes is
// what it may take besides.
const (
	layoutRowBytes = 64
	layoutBytes    = 64 << 10
)

// sizes bounds the bytes of an object that satisfies c.
func sizes(p embedding.Protocol, c embedding.Contract) (least, most int64) {
	rows, upTo := int64(c.Rows), int64(c.Rows)
	if c.Rows == 0 {
		rows, upTo = 1, int64(c.MaxRows)
	}
	row := int64(c.Cols) * int64(c.DType.Bytes())
	head := int64(p.PayloadOffset(embedding.Layout{}))
	least, most = head+rows*row, head+upTo*row
	if p == embedding.A1 {
		most += layoutBytes + upTo*layoutRowBytes
	}
	return least, most
}

// chunk returns how many of ws fit the read buffer together; at least one, as plan saw to.
func (b *batch) chunk(ws []wanted) int {
	total := int64(0)
	for n, w := range ws {
		if total += int64(w.want.Bytes); total > b.r.cfg.ReadBufferBytes {
			return n
		}
	}
	return len(ws)
}

// read gets one chunk. Objects for which the arena has no room are asked for once more after the
// cache made some.
func (b *batch) read(ctx context.Context, ws []wanted) {
	full := b.readOnce(ctx, ws)
	if len(full) == 0 {
		return
	}
	bytes := int64(0)
	for _, w := range full {
		bytes += int64(w.want.Bytes)
	}
	if b.r.cfg.Cache != nil && b.r.cfg.Cache.Evict(bytes) > 0 {
		b.readOnce(ctx, full)
	}
}

// readOnce returns the items that failed for lack of memory; they are marked as failed all the same.
func (b *batch) readOnce(ctx context.Context, ws []wanted) (full []wanted) {
	wants := make([]store.Want, len(ws))
	for n, w := range ws {
		wants[n] = w.want
	}
	gots := b.r.cfg.Store.Get(ctx, wants)
	if len(gots) != len(ws) {
		releaseAll(gots)
		for _, w := range ws {
			b.fail(w.i, fmt.Errorf("%w: %d answers to %d keys", store.ErrUnavailable, len(gots), len(ws)))
		}
		return nil
	}
	for n, w := range ws {
		if gots[n].Err != nil {
			b.fail(w.i, gots[n].Err)
			if errors.Is(gots[n].Err, arena.ErrFull) {
				full = append(full, w)
			}
			continue
		}
		b.accept(w.i, gots[n].Buf)
	}
	return full
}

func releaseAll(gots []store.Got) {
	for _, g := range gots {
		if g.Buf != nil {
			g.Buf.Release()
		}
	}
}

// accept checks an object and keeps it. It takes over the reference.
func (b *batch) accept(i int, buf *arena.Buf) {
	it := b.items[i]
	meta, _, err := b.r.cfg.Protocol.Open(buf.Bytes(), it.Key, it.Contract)
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
	if r := b.results[i].Reason; r != Absent && r != NoMemory {
		b.fault = err
	}
}
