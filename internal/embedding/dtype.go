// SPDX-License-Identifier: Apache-2.0

package embedding

import "fmt"

// DType is the element type of an embedding. Its values are the codes that the v3 object header
// carries, so a DType can be written to the wire as it is.
type DType uint32

// The element types that both object formats accept.
const (
	Float32  DType = 0
	Float16  DType = 11
	BFloat16 DType = 12
)

// Bytes returns the size of one element in bytes, or 0 for a type that no format accepts.
func (d DType) Bytes() int {
	switch d {
	case Float32:
		return 4
	case Float16, BFloat16:
		return 2
	}
	return 0
}

// String returns the name that keys carry, which is the text of the torch dtype ("torch.bfloat16").
func (d DType) String() string {
	switch d {
	case Float32:
		return "torch.float32"
	case Float16:
		return "torch.float16"
	case BFloat16:
		return "torch.bfloat16"
	}
	return fmt.Sprintf("dtype(%d)", uint32(d))
}

// ParseDType is the inverse of String. It also accepts the short names "float32", "float16" and
// "bfloat16".
func ParseDType(s string) (DType, error) {
	for _, d := range []DType{Float32, Float16, BFloat16} {
		if s == d.String() || "torch."+s == d.String() {
			return d, nil
		}
	}
	return 0, fmt.Errorf("embedding: unsupported dtype %q (want float32, float16 or bfloat16)", s)
}

// MarshalText writes the short name, so that a DType reads well in JSON and TOML.
func (d DType) MarshalText() ([]byte, error) {
	if d.Bytes() == 0 {
		return nil, fmt.Errorf("embedding: unsupported dtype code %d", uint32(d))
	}
	return []byte(d.String()[len("torch."):]), nil
}

// UnmarshalText accepts what ParseDType accepts.
func (d *DType) UnmarshalText(b []byte) error {
	v, err := ParseDType(string(b))
	if err != nil {
		return err
	}
	*d = v
	return nil
}
