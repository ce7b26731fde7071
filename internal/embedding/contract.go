// SPDX-License-Identifier: Apache-2.0

package embedding

import "fmt"

// Contract is what an object must satisfy to be used. It always comes from the reader, never from
// the object.
type Contract struct {
	Rows  int   `json:"rows"` // exact number of rows; 0 leaves it to MaxRows
	Cols  int   `json:"cols"` // width of a row, in elements
	DType DType `json:"dtype"`
	// MaxRows bounds the rows when Rows is 0, so that a header can never ask for more memory than
	// the reader is ready to give. It is not read when Rows is set.
	MaxRows int `json:"max_rows,omitempty"`
}

// PayloadBytes returns the exact payload size, or 0 when Rows is unknown.
func (c Contract) PayloadBytes() int { return c.Rows * c.Cols * c.DType.Bytes() }

// Check reports whether an object of these dimensions satisfies c.
func (c Contract) Check(rows, cols int, dtype DType) error {
	switch {
	case dtype != c.DType:
		return fmt.Errorf("%w: dtype is %v, want %v", ErrContract, dtype, c.DType)
	case cols != c.Cols:
		return fmt.Errorf("%w: %d columns, want %d", ErrContract, cols, c.Cols)
	case rows <= 0:
		return fmt.Errorf("%w: %d rows", ErrContract, rows)
	case c.Rows != 0 && rows != c.Rows:
		return fmt.Errorf("%w: %d rows, want %d", ErrContract, rows, c.Rows)
	case c.Rows == 0 && rows > c.MaxRows:
		return fmt.Errorf("%w: %d rows, at most %d", ErrContract, rows, c.MaxRows)
	}
	return nil
}
