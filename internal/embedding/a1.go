// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// The a1 head, little endian. The layout section follows it, then the payload; both start at
// multiples of 64.
//
//	 0  4 bytes  magic "AFI1"
//	 4  u16      version
//	 6  u16      reserved, 0
//	 8  u32      dtype
//	12  u32      bytes of the layout section, a multiple of 64
//	16  u64      rows
//	24  u64      cols
//	32  u64      payload bytes
//	40  u64      XXH3-64 of the payload
//	48  u64      XXH3-64 of the key
//	56  u64      XXH3-64 of bytes 0..55 and the layout section
const (
	magicA1     = "AFI1"
	versionA1   = 1
	headBytesA1 = 64
	headSumA1   = 56 // where the head's own sum stands
)

func sealA1(obj []byte, key Key, m Meta) error {
	if err := m.Layout.Validate(); err != nil {
		return err
	}
	if m.Layout.Rows() != m.Rows {
		return malformed("layout has %d rows, the payload %d", m.Layout.Rows(), m.Rows)
	}
	section := m.Layout.sectionBytes()
	payload := obj[headBytesA1+section:]
	m.Layout.put(obj[headBytesA1 : headBytesA1+section])

	le := binary.LittleEndian
	copy(obj, magicA1)
	le.PutUint16(obj[4:], versionA1)
	le.PutUint16(obj[6:], 0)
	le.PutUint32(obj[8:], uint32(m.DType))
	le.PutUint32(obj[12:], uint32(section))
	le.PutUint64(obj[16:], uint64(m.Rows))
	le.PutUint64(obj[24:], uint64(m.Cols))
	le.PutUint64(obj[32:], uint64(len(payload)))
	le.PutUint64(obj[40:], xxh3.Hash(payload))
	le.PutUint64(obj[48:], key.Sum())
	le.PutUint64(obj[headSumA1:], sumHeadA1(obj, section))
	return nil
}

func openA1(obj []byte, key Key, c Contract) (Meta, []byte, error) {
	m, payload, sum, err := openHeadA1(obj, key, c)
	if err != nil {
		return Meta{}, nil, err
	}
	if got := xxh3.Hash(payload); got != sum {
		return Meta{}, nil, fmt.Errorf("%w: sum %016x, want %016x", ErrCorrupt, got, sum)
	}
	return m, payload, nil
}

// openHeadA1 checks all but the payload, and returns that and the sum that it should have.
func openHeadA1(obj []byte, key Key, c Contract) (m Meta, payload []byte, sum uint64, err error) {
	fail := func(err error) (Meta, []byte, uint64, error) { return Meta{}, nil, 0, err }
	m, section, err := parseHeadA1(obj)
	if err != nil {
		return fail(err)
	}
	if payload, sum, err = CheckHeadA1(obj); err != nil {
		return fail(err)
	}
	if got, want := binary.LittleEndian.Uint64(obj[48:]), key.Sum(); got != want {
		return fail(fmt.Errorf("%w: key sum %016x, want %016x", ErrForeign, got, want))
	}
	if err := c.Check(m.Rows, m.Cols, m.DType); err != nil {
		return fail(err)
	}
	if err := checkSection(section, m.Rows); err != nil {
		return fail(err)
	}
	if m.Layout, err = parseLayout(obj[headBytesA1 : headBytesA1+section]); err != nil {
		return fail(err)
	}
	if m.Layout.Rows() != m.Rows {
		return fail(malformed("layout has %d rows, the payload %d", m.Layout.Rows(), m.Rows))
	}
	return m, payload, sum, nil
}

// parseHeadA1 reads the fixed fields and checks every length against len(obj). It returns the size of
// the layout section, which lies within obj.
func parseHeadA1(obj []byte) (m Meta, section int, err error) {
	if len(obj) < headBytesA1 {
		return Meta{}, 0, malformed("%d bytes, an a1 head takes %d", len(obj), headBytesA1)
	}
	le := binary.LittleEndian
	if string(obj[:4]) != magicA1 {
		return Meta{}, 0, malformed("magic %q, want %q", obj[:4], magicA1)
	}
	if v, r := le.Uint16(obj[4:]), le.Uint16(obj[6:]); v != versionA1 || r != 0 {
		return Meta{}, 0, malformed("version %d with reserved %d, want %d with 0", v, r, versionA1)
	}
	layoutBytes, stated := uint64(le.Uint32(obj[12:])), le.Uint64(obj[32:])
	rest := uint64(len(obj) - headBytesA1)
	if layoutBytes%layoutAlign != 0 || layoutBytes > rest {
		return Meta{}, 0, malformed("layout of %d bytes in an object of %d", layoutBytes, len(obj))
	}
	if stated != rest-layoutBytes {
		return Meta{}, 0, malformed("%d payload bytes stated, %d present", stated, rest-layoutBytes)
	}
	dtype, rows, cols := DType(le.Uint32(obj[8:])), le.Uint64(obj[16:]), le.Uint64(obj[24:])
	if n, ok := payloadBytes(rows, cols, dtype); !ok || uint64(n) != stated {
		return Meta{}, 0, malformed("%d payload bytes for %d x %d of %v", stated, rows, cols, dtype)
	}
	return Meta{Rows: int(rows), Cols: int(cols), DType: dtype}, int(layoutBytes), nil
}

// sumHeadA1 sums what the head's own sum covers.
func sumHeadA1(obj []byte, section int) uint64 {
	var h xxh3.Hasher
	_, _ = h.Write(obj[:headSumA1]) // never fails
	_, _ = h.Write(obj[headBytesA1 : headBytesA1+section])
	return h.Sum64()
}
