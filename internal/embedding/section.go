// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"encoding/binary"
	"math"
)

// The layout section of an a1 object, little endian: a count of parts, then the parts in prompt
// order, then zeros up to a multiple of 64. The form is canonical: one layout has one encoding.
//
//	0  u32  number of parts
//	4       parts, back to back
//
// A part:
//
//	 0  u8   kind: 1 text, 2 rows
//	 1  u8   flags of a row part: 1 non-causal, 2 carries M-RoPE positions; 0 in a text part
//	 2  u16  reserved, 0
//	 4  u32  count: token ids or rows, at least 1
//	 8  u32  positions of a row part; 0 in a text part
//	12       text part: count x i32 token id
//	         row part with flag 2: count x {u32 T, u32 Y, u32 X, u32 Z}
const (
	layoutAlign    = 64
	layoutHead     = 4
	partHead       = 12
	kindText       = 1
	kindRows       = 2
	flagNonCausal  = 1
	flagMRoPE      = 2
	tokenBytes     = 4
	mropeBytes     = 16
	maxLayoutCount = math.MaxInt32 // of rows and positions, so that users may hold them in an int32
)

// Validate reports a layout that no object can carry: no rows, a part that is neither text nor rows
// or both, M-RoPE positions that are not one per row, numbers out of range, or far more parts and
// tokens than rows. Errors wrap ErrMalformed.
func (l Layout) Validate() error {
	rows, positions := 0, 0
	for i, p := range l.Parts {
		if err := p.validate(i); err != nil {
			return err
		}
		rows += p.Rows
		positions += p.Positions
		if rows > maxLayoutCount || positions > maxLayoutCount {
			return malformed("layout exceeds %d rows or positions", maxLayoutCount)
		}
	}
	if rows == 0 {
		return malformed("layout without rows")
	}
	return checkSection(l.sectionBytes(), rows)
}

// checkSection bounds a section by the rows it describes, which a reader has checked against its
// contract: so the layout of a hostile object cannot make it allocate without bound. The most that
// known projectors need is 44 bytes per row (a token, a part and an M-RoPE position for each).
func checkSection(n, rows int) error {
	if most := min(4096+64*rows, maxHeadBytes-headBytesA1); n > most {
		return malformed("layout of %d bytes, at most %d for %d rows", n, most, rows)
	}
	return nil
}

func (p Part) validate(i int) error {
	text := len(p.Tokens) > 0
	switch {
	case text == (p.Rows != 0):
		return malformed("layout part %d has %d tokens and %d rows, want one of the two", i, len(p.Tokens), p.Rows)
	case text && (p.Positions != 0 || p.NonCausal || len(p.MRoPE) > 0):
		return malformed("layout part %d is text with the fields of rows", i)
	case p.Rows < 0 || p.Rows > maxLayoutCount || p.Positions < 0 || p.Positions > maxLayoutCount:
		return malformed("layout part %d has %d rows and %d positions, at most %d", i, p.Rows, p.Positions, maxLayoutCount)
	case len(p.MRoPE) > 0 && len(p.MRoPE) != p.Rows:
		return malformed("layout part %d has %d M-RoPE positions for %d rows", i, len(p.MRoPE), p.Rows)
	}
	for _, t := range p.Tokens {
		if t < 0 {
			return malformed("layout part %d has token id %d", i, t)
		}
	}
	return nil
}

// sectionBytes returns the size of the layout section, padding included.
func (l Layout) sectionBytes() int {
	n := layoutHead
	for _, p := range l.Parts {
		n += partHead + tokenBytes*len(p.Tokens) + mropeBytes*len(p.MRoPE)
	}
	return (n + layoutAlign - 1) / layoutAlign * layoutAlign
}

// put writes the section of a valid layout to b, which is sectionBytes long.
func (l Layout) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, uint32(len(l.Parts)))
	b = b[layoutHead:]
	for _, p := range l.Parts {
		b = b[p.put(b):]
	}
	clear(b)
}

// put writes one part and returns its size.
func (p Part) put(b []byte) int {
	le := binary.LittleEndian
	kind, flags, count := byte(kindRows), byte(0), p.Rows
	if len(p.Tokens) > 0 {
		kind, count = kindText, len(p.Tokens)
	}
	if p.NonCausal {
		flags |= flagNonCausal
	}
	if len(p.MRoPE) > 0 {
		flags |= flagMRoPE
	}
	b[0], b[1], b[2], b[3] = kind, flags, 0, 0
	le.PutUint32(b[4:], uint32(count))
	le.PutUint32(b[8:], uint32(p.Positions))
	n := partHead
	for _, t := range p.Tokens {
		le.PutUint32(b[n:], uint32(t))
		n += tokenBytes
	}
	for _, m := range p.MRoPE {
		le.PutUint32(b[n:], m.T)
		le.PutUint32(b[n+4:], m.Y)
		le.PutUint32(b[n+8:], m.X)
		le.PutUint32(b[n+12:], m.Z)
		n += mropeBytes
	}
	return n
}

// parseLayout reads a section, which may be hostile. It allocates at most eight times len(b).
func parseLayout(b []byte) (Layout, error) {
	if len(b) < layoutHead {
		return Layout{}, malformed("layout of %d bytes", len(b))
	}
	whole := len(b)
	count := binary.LittleEndian.Uint32(b)
	b = b[layoutHead:]
	if int64(count) > int64(len(b)/partHead) {
		return Layout{}, malformed("%d layout parts in %d bytes", count, whole)
	}
	l := Layout{Parts: make([]Part, count)}
	for i := range l.Parts {
		n, err := l.Parts[i].parse(b, i)
		if err != nil {
			return Layout{}, err
		}
		b = b[n:]
	}
	if err := l.Validate(); err != nil {
		return Layout{}, err
	}
	if l.sectionBytes() != whole {
		return Layout{}, malformed("layout of %d bytes, its parts take %d", whole, l.sectionBytes())
	}
	for _, c := range b {
		if c != 0 {
			return Layout{}, malformed("layout padding is not zero")
		}
	}
	return l, nil
}

// parse reads one part from the front of b and returns its size.
func (p *Part) parse(b []byte, i int) (int, error) {
	if len(b) < partHead {
		return 0, malformed("layout part %d is cut off", i)
	}
	le := binary.LittleEndian
	kind, flags, reserved := b[0], b[1], le.Uint16(b[2:])
	count, positions := int64(le.Uint32(b[4:])), le.Uint32(b[8:])
	if reserved != 0 || count == 0 || count > maxLayoutCount {
		return 0, malformed("layout part %d has count %d and reserved %d", i, count, reserved)
	}
	body := b[partHead:]
	switch {
	case kind == kindText && flags == 0 && positions == 0:
		if count > int64(len(body)/tokenBytes) {
			return 0, malformed("layout part %d has %d tokens in %d bytes", i, count, len(body))
		}
		p.Tokens = make([]int32, count)
		for j := range p.Tokens {
			p.Tokens[j] = int32(le.Uint32(body[j*tokenBytes:]))
		}
		return partHead + int(count)*tokenBytes, nil
	case kind == kindRows && flags&^(flagNonCausal|flagMRoPE) == 0:
		p.Rows, p.Positions, p.NonCausal = int(count), int(positions), flags&flagNonCausal != 0
		if flags&flagMRoPE == 0 {
			return partHead, nil
		}
		return p.parseMRoPE(body, i)
	}
	return 0, malformed("layout part %d has kind %d, flags %#x, positions %d", i, kind, flags, positions)
}

func (p *Part) parseMRoPE(body []byte, i int) (int, error) {
	if p.Rows > len(body)/mropeBytes {
		return 0, malformed("layout part %d has %d M-RoPE positions in %d bytes", i, p.Rows, len(body))
	}
	le := binary.LittleEndian
	p.MRoPE = make([]MRoPE, p.Rows)
	for j := range p.MRoPE {
		m := body[j*mropeBytes:]
		p.MRoPE[j] = MRoPE{T: le.Uint32(m), Y: le.Uint32(m[4:]), X: le.Uint32(m[8:]), Z: le.Uint32(m[12:])}
	}
	return partHead + p.Rows*mropeBytes, nil
}
