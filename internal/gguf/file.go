// SPDX-License-Identifier: Apache-2.0

package gguf

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// File is the header of a GGUF file.
type File struct {
	path    string
	size    int64
	kv      map[string]any
	tensors map[string]Tensor
}

// Open reads the header of the file at path and checks that the file is long enough for all the
// tensors that the header describes. Errors name the path; ErrFormat and ErrTruncated tell what is
// wrong.
func Open(path string) (*File, error) {
	// Opening a pipe would wait for a writer, so the kind of file is looked at first.
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrFormat, path)
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	defer in.Close()
	f, err := parse(in, st.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.path = path
	return f, nil
}

// Path returns the path that Open was given.
func (f *File) Path() string { return f.path }

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// Keys returns the metadata keys in sorted order.
func (f *File) Keys() []string { return slices.Sorted(maps.Keys(f.kv)) }

// Value returns the value of key as the type that the file gives it: uint8 to float64, bool, string,
// or a slice of one of these, which the caller must not change.
func (f *File) Value(key string) (any, bool) {
	v, ok := f.kv[key]
	return v, ok
}

// String returns the string at key; false when there is none.
func (f *File) String(key string) (string, bool) {
	v, ok := f.kv[key].(string)
	return v, ok
}

// Strings returns the array of strings at key, which the caller must not change; false when there is
// none.
func (f *File) Strings(key string) ([]string, bool) {
	v, ok := f.kv[key].([]string)
	return v, ok
}

// Bool returns the flag at key; false when there is none.
func (f *File) Bool(key string) (value, ok bool) {
	value, ok = f.kv[key].(bool)
	return value, ok
}

// Uint returns the whole number at key, whatever its width; false when there is none or when it is
// negative.
func (f *File) Uint(key string) (uint64, bool) {
	switch v := f.kv[key].(type) {
	case uint8:
		return uint64(v), true
	case uint16:
		return uint64(v), true
	case uint32:
		return uint64(v), true
	case uint64:
		return v, true
	case int8:
		return uint64(v), v >= 0
	case int16:
		return uint64(v), v >= 0
	case int32:
		return uint64(v), v >= 0
	case int64:
		return uint64(v), v >= 0
	}
	return 0, false
}

// Float returns the floating-point number at key; false when there is none.
func (f *File) Float(key string) (float64, bool) {
	switch v := f.kv[key].(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// Tensor returns the description of the tensor called name.
func (f *File) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Tensors returns all tensors in the order of their data.
func (f *File) Tensors() []Tensor {
	return slices.SortedFunc(maps.Values(f.tensors), func(a, b Tensor) int {
		return int(min(max(a.Offset-b.Offset, -1), 1))
	})
}

// Row reads row i of a tensor and returns it as float32. It decodes F32, F16, Q4_0, Q4_1, Q8_0 and
// Q6_K.
func (f *File) Row(name string, i int) ([]float32, error) {
	t, ok := f.tensors[name]
	if !ok {
		return nil, fmt.Errorf("gguf: %s has no tensor %q", f.path, name)
	}
	decode, ok := decoders[t.Type]
	if !ok {
		return nil, fmt.Errorf("gguf: %s: tensor %q has rows of type %v, which cannot be read", f.path, name, t.Type)
	}
	if i < 0 || int64(i) >= t.Rows() {
		return nil, fmt.Errorf("gguf: %s: tensor %q has no row %d, only %d rows", f.path, name, i, t.Rows())
	}
	in, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	defer in.Close()
	raw := make([]byte, t.rowBytes())
	if _, err := io.ReadFull(io.NewSectionReader(in, t.Offset+int64(i)*t.rowBytes(), t.rowBytes()), raw); err != nil {
		return nil, fmt.Errorf("gguf: %s: row %d of tensor %q: %w", f.path, i, name, err)
	}
	out := make([]float32, t.Dims[0])
	b := blocks[t.Type]
	for k := range len(out) / b.elems {
		decode(out[k*b.elems:][:b.elems], raw[k*b.bytes:][:b.bytes])
	}
	return out, nil
}
