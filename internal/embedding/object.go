// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"errors"
	"fmt"
	"math"
)

// Why an object cannot be used. Every reader counts these apart.
var (
	// ErrMalformed: a length, magic, version or head sum is wrong.
	ErrMalformed = errors.New("embedding: malformed object")
	// ErrForeign: the head names another key.
	ErrForeign = errors.New("embedding: object of another key")
	// ErrContract: rows, columns or dtype are not what the reader needs.
	ErrContract = errors.New("embedding: object breaks its contract")
	// ErrCorrupt: the payload does not match its sum.
	ErrCorrupt = errors.New("embedding: corrupt payload")
	// ErrNotFinite: the payload holds NaN or infinity.
	ErrNotFinite = errors.New("embedding: value is not finite")
)

// Meta describes an object: its dimensions and, with A1, its layout.
type Meta struct {
	Rows, Cols int
	DType      DType
	Layout     Layout // zero with V3
}

// PayloadBytes returns rows x cols x element size.
func (m Meta) PayloadBytes() int { return m.Rows * m.Cols * m.DType.Bytes() }

// PayloadOffset returns where the payload starts in an object with layout l. V3 does not carry the
// layout, so its offset is always HeaderBytesV3.
func (p Protocol) PayloadOffset(l Layout) int {
	if p == A1 {
		return headBytesA1 + l.sectionBytes()
	}
	return HeaderBytesV3
}

// ObjectBytes returns the size of a whole object with the rows of l, or 0 when no object has these
// dimensions.
func (p Protocol) ObjectBytes(l Layout, cols int, d DType) int {
	n, ok := payloadBytes(uint64(l.Rows()), uint64(cols), d)
	if !ok {
		return 0
	}
	return p.PayloadOffset(l) + n
}

// Seal makes an object of obj, whose payload is in place at PayloadOffset and whose length is exactly
// ObjectBytes: it writes everything in front of the payload. The payload must not change afterwards.
// An error wraps ErrMalformed, names what does not fit, and leaves obj unusable.
func (p Protocol) Seal(obj []byte, key Key, m Meta) error {
	n, ok := payloadBytes(uint64(m.Rows), uint64(m.Cols), m.DType)
	switch {
	case !ok:
		return malformed("cannot seal %d x %d of %v", m.Rows, m.Cols, m.DType)
	case len(m.Layout.Parts) > 0 && m.Layout.Rows() != m.Rows:
		return malformed("layout has %d rows, the payload %d", m.Layout.Rows(), m.Rows)
	case len(obj) != p.PayloadOffset(m.Layout)+n:
		return malformed("object of %d bytes, want %d", len(obj), p.PayloadOffset(m.Layout)+n)
	}
	switch p {
	case V3:
		sealV3(obj, m)
		return nil
	case A1:
		return sealA1(obj, key, m)
	}
	return malformed("unknown protocol %q", string(p))
}

// Open checks obj as an object of key that satisfies c, and returns what it is and a view of its
// payload. It checks, in this order, lengths, the head's sum, the key's sum, the contract, and the
// payload's sum; V3 has no sums and names no key, so its safety is the contract. Errors wrap
// ErrMalformed, ErrForeign, ErrContract or ErrCorrupt. obj may be hostile.
//
// Open does not look at values: see CheckFinite.
func (p Protocol) Open(obj []byte, key Key, c Contract) (Meta, []byte, error) {
	switch p {
	case V3:
		return openV3(obj, c)
	case A1:
		return openA1(obj, key, c)
	}
	return Meta{}, nil, malformed("unknown protocol %q", string(p))
}

// OpenHead is Open without the payload's sum, for an object in memory of a Store that has summed it and
// lets nobody change it. It takes the same time for any size.
func (p Protocol) OpenHead(obj []byte, key Key, c Contract) (Meta, []byte, error) {
	if p == A1 {
		m, payload, _, err := openHeadA1(obj, key, c)
		return m, payload, err
	}
	return p.Open(obj, key, c)
}

// payloadBytes multiplies without overflow, since dimensions beyond 31 bits are refused first. It
// reports false for those, for empty dimensions, and for a dtype that no format accepts. Negative
// dimensions arrive as huge ones.
func payloadBytes(rows, cols uint64, d DType) (int, bool) {
	if rows > math.MaxInt32 || cols > math.MaxInt32 {
		return 0, false
	}
	n := rows * cols * uint64(d.Bytes())
	if n == 0 || n > math.MaxInt-maxHeadBytes {
		return 0, false
	}
	return int(n), true
}

// maxHeadBytes is more than any header and layout section takes, so that adding them to a payload
// never overflows.
const maxHeadBytes = 1 << 30

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}
