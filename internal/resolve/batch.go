// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"fmt"
	"math"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// batch is the state of one Resolve. Batches are reused, so that a miss costs no memory.
type batch struct {
	r       *Resolver
	items   []Item
	results []Result
	encode  Encode
	caller  context.Context // outlives the Timeout; for encodes

	leader  []int // by item: the first item with the same key
	missing []int // leaders that the cache lacks
	keys    []embedding.Key
	wanted  []wanted
	wrong   []embedding.Key // objects to remove
	fault   error           // the last error of the Store that was no miss
	byKey   map[embedding.Key]int
	buffer  int64 // bytes that one read may take
	loans   bool  // the Store lends what it has
	unasked bool  // it was not asked what it has
}

// wanted is an item that the Store has.
type wanted struct {
	i    int // index of the item
	want store.Want
}

// clear lets go of everything but the room.
func (b *batch) clear() {
	b.items, b.results, b.encode, b.caller, b.fault = nil, nil, nil, nil, nil
	clear(b.keys)
	clear(b.wanted)
	clear(b.byKey)
	b.leader, b.missing, b.keys, b.wanted, b.wrong = b.leader[:0], b.missing[:0], b.keys[:0], b.wanted[:0], nil
	b.loans, b.unasked = false, false
}

// scanned is how many items are compared with each other; beyond, a map is faster.
const scanned = 16

// lead finds the first item of each key. A batch must not name a key twice: some Stores answer both
// and fill only one.
func (b *batch) lead() {
	if len(b.items) > scanned && b.byKey == nil {
		b.byKey = map[embedding.Key]int{}
	}
	for i := range b.items {
		b.leader = append(b.leader, b.leaderOf(i))
	}
}

func (b *batch) leaderOf(i int) int {
	key := b.items[i].Key
	if len(b.items) > scanned {
		if j, ok := b.byKey[key]; ok {
			return j
		}
		b.byKey[key] = i
		return i
	}
	for j := range i {
		if b.items[j].Key == key {
			return j
		}
	}
	return i
}

// follow gives item i what its leader j got, unless i wants something else under the same key.
func (b *batch) follow(i, j int) {
	b.results[i] = b.results[j]
	res := &b.results[i]
	if res.Buf == nil {
		return
	}
	if err := b.items[i].Contract.Check(res.Meta.Rows, res.Meta.Cols, res.Meta.DType); err != nil {
		*res = Result{Reason: Contract, Err: err}
		return
	}
	res.Buf.Retain()
}

// list collects the keys to ask for.
func (b *batch) list() {
	for _, i := range b.missing {
		b.keys = append(b.keys, b.items[i].Key)
	}
	b.loans = b.r.cfg.Store.Capabilities().Lends
}

// excluded reports that for sure nothing is stored, which takes no call.
func (b *batch) excluded() bool {
	ex, ok := b.r.cfg.Store.(store.Excluder)
	if !ok || !b.loans || !ex.NoneStored(b.keys) {
		return false
	}
	for _, i := range b.missing {
		b.results[i].Reason = Absent
	}
	return true
}

// ask finds out which items the Store has, in one question, or has all of them read where it likely has them.
func (b *batch) ask(ctx context.Context) {
	b.buffer = b.r.cfg.ReadBufferBytes
	if b.loans {
		b.buffer = math.MaxInt64 // a loan takes no memory of ours, which the read buffer bounds
	}
	if b.stored() {
		b.planAll()
		return
	}
	if b.unasked = b.expected(); b.unasked {
		b.planAll()
		return
	}
	states, err := b.r.cfg.Store.Exists(ctx, b.keys)
	if err != nil {
		for _, i := range b.missing {
			b.fail(i, err)
		}
		return
	}
	for n, i := range b.missing {
		if !states[n].Present {
			b.results[i].Reason = Absent
		} else if w, ok := b.plan(i, states[n].Bytes); ok {
			b.wanted = append(b.wanted, w)
		}
	}
}

// stored says whether the Store has said of all that is missing that it has it.
func (b *batch) stored() bool {
	for _, i := range b.missing {
		if !b.items[i].Stored {
			return false
		}
	}
	return true
}

// planAll plans to read everything, there or not.
func (b *batch) planAll() {
	for _, i := range b.missing {
		if w, ok := b.plan(i, 0); ok {
			b.wanted = append(b.wanted, w)
		}
	}
}

// plan decides from the size of an object whether it is worth reading. Where neither the Store nor the item tells
// the size, the most that the contract allows is assumed.
func (b *batch) plan(i int, size int64) (wanted, bool) {
	c := b.items[i].Contract
	least, most := sizes(b.r.cfg.Protocol, c)
	w := wanted{i: i, want: store.Want{Key: b.items[i].Key, Bytes: int(most), Exact: least == most}}
	if told := int64(b.items[i].Bytes); size == 0 && least <= told && told <= most {
		size = told // what cannot be is no fault of the object's, which nobody has seen
	}
	if size > 0 {
		if size < least || size > most {
			b.drop(i, fmt.Errorf("%w: %d bytes, want %d to %d", embedding.ErrContract, size, least, most))
			return w, false
		}
		w.want.Bytes, w.want.Exact = int(size), true
	}
	if int64(w.want.Bytes) > b.buffer {
		b.results[i].Reason = Oversize
		b.results[i].Err = fmt.Errorf("resolve: object of %d bytes exceeds store_read_buffer_bytes (%d)", w.want.Bytes, b.buffer)
		return w, false
	}
	if b.r.loses(int64(w.want.Bytes), c) {
		b.results[i].Reason = Recompute
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

// chunk returns how many of ws fit the read buffer together, at least one.
func (b *batch) chunk(ws []wanted) int {
	total := int64(0)
	for n, w := range ws {
		if total += int64(w.want.Bytes); total > b.buffer {
			return max(n, 1)
		}
	}
	return len(ws)
}
