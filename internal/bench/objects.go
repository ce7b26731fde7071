// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
)

// objects are what one case moves, in memory of this process.
type objects struct {
	items []resolve.Item
	metas []embedding.Meta
	bufs  []*arena.Buf
}

// make builds n sealed objects with payloads of size bytes.
func (r *storeRig) make(name string, n, size int) (*objects, error) {
	o := &objects{}
	rows := size / (cols * 4)
	layout := embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}
	m := embedding.Meta{Rows: rows, Cols: cols, DType: embedding.Float32, Layout: layout}
	for i := range n {
		key := embedding.Key(fmt.Sprintf("bench@id:%s/%d/%d/%d", name, size, n, i))
		buf, err := r.arena.Reserve(embedding.A1.ObjectBytes(layout, cols, m.DType))
		if err != nil {
			return o, errors.Join(err, o.release())
		}
		o.bufs = append(o.bufs, buf)
		payload := buf.Bytes()[embedding.A1.PayloadOffset(layout):]
		for j := range payload {
			payload[j] = byte(i+j) & 0x3f
		}
		if err := embedding.A1.Seal(buf.Bytes(), key, m); err != nil {
			return o, errors.Join(err, o.release())
		}
		buf.Commit()
		o.items = append(o.items, resolve.Item{Key: key, Contract: embedding.Contract{Rows: rows, Cols: cols, DType: m.DType}})
		o.metas = append(o.metas, m)
	}
	return o, nil
}

func (o *objects) release() error {
	for _, b := range o.bufs {
		b.Release()
	}
	o.bufs = nil
	return nil
}

func (o *objects) keys() []embedding.Key {
	keys := make([]embedding.Key, len(o.items))
	for i, it := range o.items {
		keys[i] = it.Key
	}
	return keys
}
