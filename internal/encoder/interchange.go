// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// An Encoder whose namespace is of Protocol V3 shares a Store with vLLM: its cache and the Store hold v3
// objects, of vLLM's dtype. P/Ds take a1 objects of the engine's dtype, so each delivery makes one. What
// was just computed goes the same way, through the dtype of the Store: a hit and a fresh encode give a
// P/D the same bits.

// wire is the format of what P/Ds get.
const wire = embedding.A1

// shares says whether what the Store holds is what P/Ds get.
func (e *Encoder) shares() bool { return e.cfg.Namespace.Protocol == wire }

// converts says whether the engine computes in another dtype than that of the Store.
func (e *Encoder) converts() bool { return e.spec.DType != e.cfg.Namespace.DType }

// room reserves memory for an item: that of the whole object, or of what it is converted from. payload is
// where the engine writes.
func (e *Encoder) room(it *item) (buf *arena.Buf, payload []byte, err error) {
	size, offset := e.format().ObjectBytes(it.layout, e.spec.Cols, e.spec.DType), e.format().PayloadOffset(it.layout)
	if e.converts() {
		size, offset = size-offset, 0
	}
	if buf, err = e.reserve(size); err != nil {
		return nil, nil, err
	}
	return buf, buf.Bytes()[offset:size], nil
}

// wireMeta describes what P/Ds get of an item.
func (e *Encoder) wireMeta(it *item) embedding.Meta {
	m := e.meta(it)
	m.DType = e.spec.DType
	return m
}

// relayout gives an object of the Store its layout in the cache, where a v3 object has none, for deliveries
// that know the key alone.
func (e *Encoder) relayout(it *item) {
	if e.shares() || it.source != control.SourceStore {
		return
	}
	e.cfg.Cache.Remove(it.key)
	e.cfg.Cache.Put(it.key, it.buf, e.meta(it))
}

// parcel returns the object of an item as P/Ds get it. The caller owns one reference.
func (e *Encoder) parcel(it *item) (*arena.Buf, error) {
	if e.shares() {
		return it.buf.Retain(), nil
	}
	return e.seal(wire, it, e.wireMeta(it), it.buf.Bytes()[e.format().PayloadOffset(it.layout):], e.cfg.Namespace.DType)
}

// seal makes an object of format p out of a payload of dtype from.
func (e *Encoder) seal(p embedding.Protocol, it *item, m embedding.Meta, payload []byte, from embedding.DType) (*arena.Buf, error) {
	buf, err := e.reserve(p.ObjectBytes(m.Layout, m.Cols, m.DType))
	if err != nil {
		return nil, err
	}
	defer buf.Abort()
	if err := embedding.Convert(buf.Bytes()[p.PayloadOffset(m.Layout):], m.DType, payload, from); err != nil {
		return nil, err
	}
	if err := p.Seal(buf.Bytes(), it.key, m); err != nil {
		return nil, err
	}
	buf.Commit()
	return buf, nil
}
