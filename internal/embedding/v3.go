// SPDX-License-Identifier: Apache-2.0

package embedding

import "encoding/binary"

// HeaderBytesV3 is the size of a v3 header; the payload follows at once.
const HeaderBytesV3 = 24

// The v3 header, little endian:
//
//	 0  u32  magic
//	 4  u32  dtype
//	 8  u64  rows
//	16  u64  cols
const magicV3 = 0x4D4F4F4E

func sealV3(obj []byte, m Meta) {
	le := binary.LittleEndian
	le.PutUint32(obj[0:], magicV3)
	le.PutUint32(obj[4:], uint32(m.DType))
	le.PutUint64(obj[8:], uint64(m.Rows))
	le.PutUint64(obj[16:], uint64(m.Cols))
}

func openV3(obj []byte, c Contract) (Meta, []byte, error) {
	if len(obj) < HeaderBytesV3 {
		return Meta{}, nil, malformed("%d bytes, a v3 header takes %d", len(obj), HeaderBytesV3)
	}
	le := binary.LittleEndian
	if magic := le.Uint32(obj); magic != magicV3 {
		return Meta{}, nil, malformed("magic %#x, want %#x", magic, uint32(magicV3))
	}
	dtype, rows, cols := DType(le.Uint32(obj[4:])), le.Uint64(obj[8:]), le.Uint64(obj[16:])
	payload := obj[HeaderBytesV3:]
	n, ok := payloadBytes(rows, cols, dtype)
	if !ok || n != len(payload) {
		return Meta{}, nil, malformed("%d payload bytes for %d x %d of %v", len(payload), rows, cols, dtype)
	}
	m := Meta{Rows: int(rows), Cols: int(cols), DType: dtype}
	if err := c.Check(m.Rows, m.Cols, m.DType); err != nil {
		return Meta{}, nil, err
	}
	return m, payload, nil
}
