// SPDX-License-Identifier: Apache-2.0

package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// chunkElems is how many values a Fill is asked for at a time, small enough to stay in the L2 cache.
const chunkElems = 8192

// Fill computes the values of a tensor: elements off to off+len(dst) go to dst. A Writer asks for
// every element once, in order, tensor by tensor.
type Fill func(dst []float32, off int)

// Writer collects metadata and tensors and writes them as one file. The zero value is empty and
// ready. A Writer is used by one goroutine.
type Writer struct {
	kv      []byte // encoded pairs
	nKV     int
	tensors []pending
	err     error // the first misuse, reported by WriteTo
}

type pending struct {
	Tensor
	fill Fill
}

// Set adds a metadata pair. val is a uint32, int32, float32, bool or string, or a slice of int32,
// float32 or string; WriteTo reports any other type. Keys must differ.
func (w *Writer) Set(key string, val any) {
	w.nKV++
	w.kv = appendString(w.kv, key)
	switch v := val.(type) {
	case uint32:
		w.fixed(kindUint32, v)
	case int32:
		w.fixed(kindInt32, v)
	case float32:
		w.fixed(kindFloat32, v)
	case bool:
		w.fixed(kindBool, v)
	case string:
		w.kv = appendString(appendU32(w.kv, kindString), v)
	case []int32:
		w.fixedArray(kindInt32, len(v), v)
	case []float32:
		w.fixedArray(kindFloat32, len(v), v)
	case []string:
		w.fixedArray(kindString, len(v), []byte(nil))
		for _, s := range v {
			w.kv = appendString(w.kv, s)
		}
	default:
		w.fail(fmt.Errorf("gguf: key %q has a value of type %T, which cannot be written", key, val))
	}
}

// Add adds a tensor of type F32 or F16. dims are in GGML's order, row length first.
func (w *Writer) Add(name string, typ Type, fill Fill, dims ...int) {
	t := Tensor{Name: name, Type: typ}
	for _, d := range dims {
		t.Dims = append(t.Dims, int64(d))
	}
	if err := t.check(); err != nil {
		w.fail(err)
		return
	}
	if typ != F32 && typ != F16 {
		w.fail(fmt.Errorf("gguf: tensor %q is of type %v, only F32 and F16 can be written", name, typ))
		return
	}
	w.tensors = append(w.tensors, pending{t, fill})
}

// WriteFile writes the model to path, by way of a temporary file in the same folder: the file appears
// whole or not at all, and what a hard link to an older one shows does not change.
func (w *Writer) WriteFile(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	defer os.Remove(f.Name()) // fails once renamed, as it should
	defer f.Close()
	if _, err := w.WriteTo(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	return nil
}

// WriteTo writes the model to out and returns the bytes written. Each call runs every Fill again.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	head := w.header()
	total := int64(0)
	put := func(b []byte) error {
		n, err := out.Write(b)
		total += int64(n)
		if err != nil {
			return fmt.Errorf("gguf: writing at byte %d: %w", total, err)
		}
		return nil
	}
	if err := put(head); err != nil {
		return total, err
	}
	// One chunk of values and its encoding are all the memory that a model of any size takes.
	vals, raw := make([]float32, chunkElems), make([]byte, 0, 4*chunkElems+defaultAlign)
	for _, t := range w.tensors {
		n := int(t.Dims[0] * t.Rows())
		for off := 0; off < n; off += chunkElems {
			chunk := vals[:min(chunkElems, n-off)]
			t.fill(chunk, off)
			raw = appendValues(raw[:0], t.Type, chunk)
			if off+len(chunk) == n {
				raw = append(raw, make([]byte, padded(t.Bytes(), defaultAlign)-t.Bytes())...)
			}
			if err := put(raw); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// header returns all that stands before the tensor data, padding included.
func (w *Writer) header() []byte {
	b := appendU32([]byte(magic), version)
	b = appendU64(appendU64(b, uint64(len(w.tensors))), uint64(w.nKV))
	b = append(b, w.kv...)
	off := int64(0)
	for _, t := range w.tensors {
		b = appendU32(appendString(b, t.Name), uint32(len(t.Dims)))
		for _, d := range t.Dims {
			b = appendU64(b, uint64(d))
		}
		b = appendU64(appendU32(b, uint32(t.Type)), uint64(off))
		off += padded(t.Bytes(), defaultAlign)
	}
	return append(b, make([]byte, padded(int64(len(b)), defaultAlign)-int64(len(b)))...)
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// fixed appends a value of fixed size.
func (w *Writer) fixed(kind uint32, v any) {
	w.kv, _ = binary.Append(appendU32(w.kv, kind), binary.LittleEndian, v)
}

// fixedArray appends an array of n elements, given as a slice of fixed-size values.
func (w *Writer) fixedArray(kind uint32, n int, v any) {
	w.kv = appendU64(appendU32(appendU32(w.kv, kindArray), kind), uint64(n))
	w.kv, _ = binary.Append(w.kv, binary.LittleEndian, v)
}

func appendU32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func appendU64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func appendString(b []byte, s string) []byte { return append(appendU64(b, uint64(len(s))), s...) }

// appendValues appends vals as typ stores them.
func appendValues(b []byte, typ Type, vals []float32) []byte {
	if typ == F16 {
		for _, v := range vals {
			b = binary.LittleEndian.AppendUint16(b, toHalf(v))
		}
		return b
	}
	for _, v := range vals {
		b = appendU32(b, math.Float32bits(v))
	}
	return b
}
