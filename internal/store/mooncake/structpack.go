// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
)

// typ is a type of struct_pack. They are made once, since a code takes longer to work out than a message to write.
type typ struct {
	literal string // the bytes whose MD5 names the type on the wire
	code    uint32 // opens every value. Bit 0 is free to say that a meta byte follows
}

func newType(literal string) typ { return typ{literal, md5u32(literal) &^ 1} }

var (
	tI32  = newType("\x01")
	tI64  = newType("\x03")
	tU64  = newType("\x04")
	tU8   = newType("\x06")
	tBool = newType("\x0b")
	tVoid = newType("\xfa")
	tStr  = newType("\x80\x0c")
	// tUUID is std::pair<u64, u64>. An aggregate that is copied as it is also states its size and
	// alignment, which the two 0x89 stand for.
	tUUID = newType("\xfd\x04\x04\x89\x89\xff")
)

func vec(t typ) typ { return newType("\x84" + t.literal) }
func opt(t typ) typ { return newType("\x85" + t.literal) }

// expected is tl::expected<t, ErrorCode>; ErrorCode is an i32.
func expected(t typ) typ { return newType("\x87" + t.literal + tI32.literal) }

// tuple is both std::tuple (the arguments of a call) and a reflected struct.
func tuple(ts ...typ) typ {
	s := "\xfd"
	for _, t := range ts {
		s += t.literal
	}
	return newType(s + "\xff")
}

func md5u32(s string) uint32 {
	h := md5.Sum([]byte(s)) // a name for a type, not protection
	return binary.BigEndian.Uint32(h[:4])
}

// The meta byte: bit 2 says that the type literal follows, bits 3 and 4 give the width of lengths.
const (
	metaLiteral    = 1 << 2
	metaWidthShift = 3
)

// encoder writes one struct_pack message. All container lengths of a message have one width, so the
// largest length has to be known at the start.
type encoder struct {
	b     []byte
	width int // of lengths, in bytes
}

// newEncoder starts a message of type t. room is a guess at its size in bytes.
func newEncoder(t typ, maxLen, room int) *encoder {
	e := &encoder{b: make([]byte, 0, room+8), width: 1}
	var shift byte
	for maxLen>>(8*e.width) != 0 {
		e.width *= 2
		shift++
	}
	if e.width == 1 {
		e.b = binary.LittleEndian.AppendUint32(e.b, t.code)
		return e
	}
	e.b = binary.LittleEndian.AppendUint32(e.b, t.code|1)
	e.b = append(e.b, shift<<metaWidthShift)
	return e
}

func (e *encoder) u8(v byte)    { e.b = append(e.b, v) }
func (e *encoder) u64(v uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, v) }
func (e *encoder) i32(v int32)  { e.b = binary.LittleEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) uuid(u uuid)  { e.u64(u[0]); e.u64(u[1]) }

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

func (e *encoder) length(n int) {
	for i := range e.width {
		e.b = append(e.b, byte(n>>(8*i)))
	}
}

func (e *encoder) str(s string) { e.length(len(s)); e.b = append(e.b, s...) }

func (e *encoder) strs(v []string) {
	e.length(len(v))
	for _, s := range v {
		e.str(s)
	}
}

// maxLen returns the largest container length of a message about keys, and the bytes that they take.
func maxLen(keys []string) (longest, bytes int) {
	longest = len(keys)
	for _, k := range keys {
		longest = max(longest, len(k))
		bytes += len(k)
	}
	return longest, bytes
}

var errShort = errors.New("struct_pack: message too short")

// decoder reads one struct_pack message. The first failure sticks in err, and reads after it yield
// zeros, so that callers look at err once.
type decoder struct {
	b     []byte
	width int
	err   error
}

// newDecoder reads the head of a message that has to be of type t. The official binaries put the
// type literal and a NUL into every answer; it is checked where it is present.
func newDecoder(b []byte, t typ) *decoder {
	d := &decoder{b: b, width: 1}
	c := d.u32()
	if d.err == nil && c&^1 != t.code {
		d.fail(fmt.Errorf("struct_pack: type %08x, want %08x", c&^1, t.code))
	}
	if c&1 == 0 || d.err != nil {
		return d
	}
	meta := d.u8()
	d.width = 1 << (meta >> metaWidthShift & 3)
	if meta&metaLiteral != 0 {
		n := len(t.literal)
		if l := d.take(n + 1); d.err == nil && (string(l[:n]) != t.literal || l[n] != 0) {
			d.fail(fmt.Errorf("struct_pack: type literal % x, want % x and 0", l, t.literal))
		}
	}
	return d
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.fail(errShort)
		return nil
	}
	r := d.b[:n]
	d.b = d.b[n:]
	return r
}

// uint reads n bytes, at most 8.
func (d *decoder) uint(n int) uint64 {
	var v [8]byte
	copy(v[:], d.take(n))
	return binary.LittleEndian.Uint64(v[:])
}

func (d *decoder) u8() byte    { return byte(d.uint(1)) }
func (d *decoder) u32() uint32 { return uint32(d.uint(4)) }
func (d *decoder) u64() uint64 { return d.uint(8) }
func (d *decoder) str() string { return string(d.take(d.length())) }

// length reads a container length. One that exceeds the message, whose elements take a byte at least,
// is an error.
func (d *decoder) length() int {
	n := d.uint(d.width)
	if n > uint64(len(d.b)) {
		d.fail(errShort)
		return 0
	}
	return int(n)
}

// strs reads a list of strings.
func (d *decoder) strs() []string {
	var v []string
	for range d.length() {
		v = append(v, d.str())
	}
	return v
}

// result reads tl::expected<T, ErrorCode>: a T through value, or the code.
func (d *decoder) result(value func(*decoder) int64) result {
	if d.u8() != 0 {
		return result{n: value(d)}
	}
	return result{code: code(int32(d.u32()))}
}

// results reads a list of exactly want results.
func (d *decoder) results(want int, value func(*decoder) int64) ([]result, error) {
	if n := d.length(); d.err == nil && n != want {
		d.fail(fmt.Errorf("mooncake: %d results for %d keys", n, want))
	}
	rs := make([]result, 0, want)
	for i := 0; i < want && d.err == nil; i++ {
		rs = append(rs, d.result(value))
	}
	return rs, d.err
}

// The values that results carry.
func asI64(d *decoder) int64  { return int64(d.u64()) }
func asBool(d *decoder) int64 { return int64(d.u8()) }
func asVoid(*decoder) int64   { return 0 }
