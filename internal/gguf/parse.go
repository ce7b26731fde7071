// SPDX-License-Identifier: Apache-2.0

package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// The least that a metadata pair and a tensor record take up: an empty name, a type and one byte; an
// empty name, one dimension, a type and an offset.
const (
	minPairBytes   = 8 + 4 + 1
	minTensorBytes = 8 + 4 + 8 + 4 + 8
)

// parser reads a header front to back. The first error sticks: after it every read returns zero
// values, so that callers check once per record.
type parser struct {
	in   *bufio.Reader
	pos  int64 // bytes read
	size int64 // bytes in the file
	err  error
	// part and name say what is being read, for errors.
	part, name string
}

// parse reads a header from in, the start of a file of size bytes.
func parse(in io.Reader, size int64) (*File, error) {
	p := &parser{in: bufio.NewReaderSize(in, 1<<16), size: size, part: "the magic number"}
	if got := p.take(4); p.err == nil && string(got) != magic {
		return nil, fmt.Errorf("%w: starts with %q, want %q: not a GGUF file", ErrFormat, got, magic)
	}
	p.part = "the counts"
	v := p.u32()
	if p.err == nil && v != 2 && v != version {
		return nil, fmt.Errorf("%w: GGUF version %d, want 2 or %d (little endian)", ErrFormat, v, version)
	}
	nTensors, nKV := p.u64(), p.u64()
	p.room(nKV, minPairBytes)
	p.room(nTensors, minTensorBytes)
	f := &File{size: size, kv: map[string]any{}, tensors: map[string]Tensor{}}
	for i := uint64(0); i < nKV && p.err == nil; i++ {
		p.pair(f, i)
	}
	align := p.alignment(f)
	var infos []Tensor
	for i := uint64(0); i < nTensors && p.err == nil; i++ {
		infos = append(infos, p.tensor(i, align))
	}
	if p.err != nil {
		return nil, p.err
	}
	return f, f.place(infos, padded(p.pos, align))
}

// pair reads metadata pair i into f.
func (p *parser) pair(f *File, i uint64) {
	p.part, p.name = "the name of key number ", fmt.Sprint(i+1)
	key := p.str(maxNameBytes)
	p.part, p.name = "the value of key ", key
	v := p.value(p.u32())
	if _, dup := f.kv[key]; dup {
		p.fail(fmt.Errorf("%w: key %q appears twice", ErrFormat, key))
	}
	f.kv[key] = v
}

// alignment returns the alignment of tensor data that the metadata ask for.
func (p *parser) alignment(f *File) int64 {
	v, ok := f.kv[alignKey]
	if !ok {
		return defaultAlign
	}
	a, ok := v.(uint32)
	if !ok || a == 0 || a&(a-1) != 0 {
		p.fail(fmt.Errorf("%w: %s is %v, want a power of two", ErrFormat, alignKey, v))
		return defaultAlign
	}
	return int64(a)
}

// tensor reads tensor record i. Its Offset is still relative to the start of the data.
func (p *parser) tensor(i uint64, align int64) Tensor {
	p.part, p.name = "the name of tensor number ", fmt.Sprint(i+1)
	t := Tensor{Name: p.str(maxNameBytes)}
	p.part, p.name = "the description of tensor ", t.Name
	n := p.u32()
	if p.err == nil && n > maxDims {
		p.fail(fmt.Errorf("%w: tensor %q has %d dimensions, want 1 to %d", ErrFormat, t.Name, n, maxDims))
	}
	for range min(n, maxDims) {
		t.Dims = append(t.Dims, int64(p.u64()))
	}
	t.Type = Type(p.u32())
	off := p.u64()
	if p.err != nil {
		return t
	}
	if err := t.check(); err != nil {
		p.fail(err)
	}
	if off%uint64(align) != 0 {
		p.fail(fmt.Errorf("%w: tensor %q is at offset %d, not a multiple of %d", ErrFormat, t.Name, off, align))
	}
	t.Offset = int64(min(off, math.MaxInt64))
	return t
}

// place makes the offsets of infos absolute, checks them against the size of the file, and adds them
// to f. The data start at base.
func (f *File) place(infos []Tensor, base int64) error {
	end, last := base, ""
	for _, t := range infos {
		if _, dup := f.tensors[t.Name]; dup {
			return fmt.Errorf("%w: tensor %q appears twice", ErrFormat, t.Name)
		}
		if t.Offset > math.MaxInt64-base-t.Bytes() {
			return fmt.Errorf("%w: tensor %q is at offset %d, beyond any file", ErrFormat, t.Name, t.Offset)
		}
		t.Offset += base
		if e := t.Offset + t.Bytes(); e > end {
			end, last = e, t.Name
		}
		f.tensors[t.Name] = t
	}
	if len(infos) > 0 && end > f.size {
		return fmt.Errorf("%w: it has %d bytes, but its header describes %d (up to tensor %q); get the file again",
			ErrTruncated, f.size, end, last)
	}
	return nil
}

// fail keeps the first error.
func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// room reports whether n items of at least each bytes can follow in the file, and fails if not. It
// stands before every allocation whose size the file chooses.
func (p *parser) room(n, each uint64) bool {
	left := uint64(p.size - p.pos)
	if p.err == nil && n > left/each {
		p.fail(fmt.Errorf("%w: it ends at byte %d, but needs %[6]d bytes at byte %[5]d for %[3]s%[4]s; get the file again",
			ErrTruncated, p.size, p.part, p.name, p.pos, mulCap(n, each)))
	}
	return p.err == nil
}

// mulCap returns a x b, or the largest uint64 where that overflows.
func mulCap(a, b uint64) uint64 {
	if b != 0 && a > math.MaxUint64/b {
		return math.MaxUint64
	}
	return a * b
}

// take reads n bytes. The result is valid for ever.
func (p *parser) take(n uint64) []byte {
	if !p.room(n, 1) {
		return nil
	}
	b := make([]byte, n)
	m, err := io.ReadFull(p.in, b)
	p.pos += int64(m)
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrTruncated // the file shrank since its size was taken
		}
		p.fail(fmt.Errorf("%s%s at byte %d: %w", p.part, p.name, p.pos, err))
		return nil
	}
	return b
}

// word reads a number of n bytes in place, without the allocation that take makes: files hold many numbers.
// n is at most 8.
func (p *parser) word(n int) uint64 {
	if !p.room(uint64(n), 1) {
		return 0
	}
	b, err := p.in.Peek(n)
	if err != nil {
		p.take(uint64(n)) // reports it
		return 0
	}
	var w [8]byte
	copy(w[:], b)
	p.in.Discard(n) // cannot fail: n bytes are buffered
	p.pos += int64(n)
	return binary.LittleEndian.Uint64(w[:])
}

func (p *parser) u32() uint32 { return uint32(p.word(4)) }
func (p *parser) u64() uint64 { return p.word(8) }

// str reads a string of at most limit bytes.
func (p *parser) str(limit uint64) string {
	n := p.u64()
	if p.err == nil && n > limit && n <= uint64(p.size-p.pos) {
		p.fail(fmt.Errorf("%w: %s%s has %d bytes, at most %d allowed", ErrFormat, p.part, p.name, n, limit))
	}
	return string(p.take(n))
}
