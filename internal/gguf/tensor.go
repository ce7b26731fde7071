// SPDX-License-Identifier: Apache-2.0

package gguf

import (
	"fmt"
	"math"
	"math/bits"
)

// Type is the element type of a tensor, with the numbers that files carry.
type Type uint32

// The element types that Row decodes. A Writer writes F32 and F16.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q8_0 Type = 8
	Q6_K Type = 14
)

// block is how a type is stored: elems values in every bytes bytes.
type block struct {
	name         string
	elems, bytes int
}

// blocks holds every type whose size is known, so that data ranges can be checked. The numbers are
// those of ggml's type table.
var blocks = map[Type]block{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, 28: {"F64", 1, 8}, 30: {"BF16", 1, 2},
	24: {"I8", 1, 1}, 25: {"I16", 1, 2}, 26: {"I32", 1, 4}, 27: {"I64", 1, 8},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, 6: {"Q5_0", 32, 22}, 7: {"Q5_1", 32, 24},
	Q8_0: {"Q8_0", 32, 34}, 9: {"Q8_1", 32, 36}, 39: {"MXFP4", 32, 17},
	10: {"Q2_K", 256, 84}, 11: {"Q3_K", 256, 110}, 12: {"Q4_K", 256, 144}, 13: {"Q5_K", 256, 176},
	Q6_K: {"Q6_K", 256, 210}, 15: {"Q8_K", 256, 292}, 34: {"TQ1_0", 256, 54}, 35: {"TQ2_0", 256, 66},
	16: {"IQ2_XXS", 256, 66}, 17: {"IQ2_XS", 256, 74}, 18: {"IQ3_XXS", 256, 98}, 19: {"IQ1_S", 256, 50},
	20: {"IQ4_NL", 32, 18}, 21: {"IQ3_S", 256, 110}, 22: {"IQ2_S", 256, 82}, 23: {"IQ4_XS", 256, 136},
	29: {"IQ1_M", 256, 56},
}

// String returns the name that ggml gives the type.
func (t Type) String() string {
	if b, ok := blocks[t]; ok {
		return b.name
	}
	return fmt.Sprintf("type(%d)", uint32(t))
}

// Tensor describes one tensor of a file.
type Tensor struct {
	Name string
	Type Type
	// Dims are in GGML's order: Dims[0] is the length of a row, and varies fastest.
	Dims []int64
	// Offset is where the data starts, in bytes from the start of the file.
	Offset int64
}

// Rows returns the number of rows: the product of all dimensions but the first.
func (t Tensor) Rows() int64 {
	n := int64(1)
	for _, d := range t.Dims[min(1, len(t.Dims)):] {
		n *= d
	}
	return n
}

// Bytes returns the size of the data, or 0 for a type of unknown size.
func (t Tensor) Bytes() int64 { return t.rowBytes() * t.Rows() }

// rowBytes returns the stored size of one row.
func (t Tensor) rowBytes() int64 {
	b := blocks[t.Type]
	if b.elems == 0 || len(t.Dims) == 0 {
		return 0
	}
	return t.Dims[0] / int64(b.elems) * int64(b.bytes)
}

// check reports dimensions that no file can hold. Afterwards Rows and Bytes cannot overflow.
func (t Tensor) check() error {
	if len(t.Dims) == 0 || len(t.Dims) > maxDims {
		return fmt.Errorf("%w: tensor %q has %d dimensions, want 1 to %d", ErrFormat, t.Name, len(t.Dims), maxDims)
	}
	// 8 bytes is more than any type needs for an element.
	room := uint64(math.MaxInt64 / 8)
	n := uint64(1)
	for _, d := range t.Dims {
		if d <= 0 {
			return fmt.Errorf("%w: tensor %q has a dimension of %d", ErrFormat, t.Name, uint64(d))
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > room {
			return fmt.Errorf("%w: tensor %q with dimensions %v is too large", ErrFormat, t.Name, t.Dims)
		}
		n = lo
	}
	if b, ok := blocks[t.Type]; ok && t.Dims[0]%int64(b.elems) != 0 {
		return fmt.Errorf("%w: tensor %q has rows of %d elements, but %v comes in blocks of %d",
			ErrFormat, t.Name, t.Dims[0], t.Type, b.elems)
	}
	return nil
}
