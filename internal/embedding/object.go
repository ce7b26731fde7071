// SPDX-License-Identifier: Apache-2.0

package embedding

import "errors"

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
