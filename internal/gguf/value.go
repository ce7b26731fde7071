// SPDX-License-Identifier: Apache-2.0

package gguf

import (
	"fmt"
	"math"
)

// value reads a metadata value of the given kind.
func (p *parser) value(kind uint32) any {
	switch kind {
	case kindUint8:
		return uint8(p.word(1))
	case kindInt8:
		return int8(p.word(1))
	case kindUint16:
		return uint16(p.word(2))
	case kindInt16:
		return int16(p.word(2))
	case kindUint32:
		return p.u32()
	case kindInt32:
		return int32(p.u32())
	case kindFloat32:
		return math.Float32frombits(p.u32())
	case kindBool:
		return p.word(1) != 0
	case kindString:
		return p.str(math.MaxUint64)
	case kindUint64:
		return p.u64()
	case kindInt64:
		return int64(p.u64())
	case kindFloat64:
		return math.Float64frombits(p.u64())
	case kindArray:
		return p.array(p.u32())
	}
	p.fail(fmt.Errorf("%w: key %q has a value of unknown type %d", ErrFormat, p.name, kind))
	return nil
}

// array reads an array whose elements have the given kind. Arrays of arrays are refused, as llama.cpp
// refuses them.
func (p *parser) array(kind uint32) any {
	n := p.u64()
	switch kind {
	case kindUint8:
		return elems(p, n, 1, func() uint8 { return uint8(p.word(1)) })
	case kindInt8:
		return elems(p, n, 1, func() int8 { return int8(p.word(1)) })
	case kindUint16:
		return elems(p, n, 2, func() uint16 { return uint16(p.word(2)) })
	case kindInt16:
		return elems(p, n, 2, func() int16 { return int16(p.word(2)) })
	case kindUint32:
		return elems(p, n, 4, p.u32)
	case kindInt32:
		return elems(p, n, 4, func() int32 { return int32(p.u32()) })
	case kindFloat32:
		return elems(p, n, 4, func() float32 { return math.Float32frombits(p.u32()) })
	case kindBool:
		return elems(p, n, 1, func() bool { return p.word(1) != 0 })
	case kindString:
		return elems(p, n, 8, func() string { return p.str(math.MaxUint64) })
	case kindUint64:
		return elems(p, n, 8, p.u64)
	case kindInt64:
		return elems(p, n, 8, func() int64 { return int64(p.u64()) })
	case kindFloat64:
		return elems(p, n, 8, func() float64 { return math.Float64frombits(p.u64()) })
	}
	p.fail(fmt.Errorf("%w: key %q has an array of unknown type %d", ErrFormat, p.name, kind))
	return nil
}

// elems reads n elements of at least size bytes each.
func elems[T any](p *parser, n, size uint64, read func() T) []T {
	if !p.room(n, size) {
		return nil
	}
	out := make([]T, n)
	for i := range out {
		if out[i] = read(); p.err != nil {
			return nil
		}
	}
	return out
}
