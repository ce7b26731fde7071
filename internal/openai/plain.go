// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// plain returns how many bytes b begins with that go on a JSON string which is printable ASCII, 0x20 to 0x7f: up to a
// quote, a backslash, or a byte that is not.
func plain(b []byte) int {
	n := vectors(b, ' ')
	return n + words(b[n:], space)
}

// unquoted returns how many bytes b begins with that are neither a quote nor a backslash.
func unquoted(b []byte) int {
	n := vectors(b, -128)
	return n + words(b[n:], 0)
}

// A byte of every lane of a word.
const (
	low       = 0x0101010101010101
	high      = 0x8080808080808080
	quote     = low * '"'
	backslash = low * '\\'
	space     = low * ' '
)

// windowBytes is how much windows looks at at a time.
const windowBytes = 1 << 10

// windows returns how many bytes b begins with, in whole windows, that are no quote, no backslash, and not less than
// least, as numbers with a sign: what vectors does, where the processor has no instructions for that.
func windows(b []byte, least int8) (n int) {
	for ; len(b)-n >= windowBytes; n += windowBytes {
		w := b[n : n+windowBytes]
		if bytes.IndexByte(w, '"') >= 0 || bytes.IndexByte(w, '\\') >= 0 || least == ' ' && !printable(w) {
			break
		}
	}
	return n
}

// printable says whether every byte is in 0x20..0x7f.
func printable(b []byte) bool {
	for ; len(b) >= 64; b = b[64:] {
		p := (*[64]byte)(b) // one check of bounds for all
		v0, v1 := binary.LittleEndian.Uint64(p[0:8]), binary.LittleEndian.Uint64(p[8:16])
		v2, v3 := binary.LittleEndian.Uint64(p[16:24]), binary.LittleEndian.Uint64(p[24:32])
		v4, v5 := binary.LittleEndian.Uint64(p[32:40]), binary.LittleEndian.Uint64(p[40:48])
		v6, v7 := binary.LittleEndian.Uint64(p[48:56]), binary.LittleEndian.Uint64(p[56:64])
		// A byte below 0x20 borrows in v-space and sets its high bit; no word with such a byte can
		// come out clean, because the lowest one always shows.
		if (v0|v1|v2|v3|v4|v5|v6|v7|(v0-space)|(v1-space)|(v2-space)|(v3-space)|(v4-space)|(v5-space)|(v6-space)|(v7-space))&high != 0 {
			return false
		}
	}
	return !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' || c >= utf8.RuneSelf })
}

// words does what plain, with space, and unquoted, with 0, do, a word at a time.
func words(b []byte, least uint64) (n int) {
	for ; len(b)-n >= 8; n += 8 {
		v := binary.LittleEndian.Uint64(b[n:])
		q, e := v^quote, v^backslash
		// A lane that is 0 borrows and so shows in its high bit; what a borrow does to lanes above it does not matter,
		// since the lowest counts.
		stop := (q-low)&^q | (e-low)&^e
		if least != 0 {
			stop |= v | (v-least)&^v
		}
		if stop &= high; stop != 0 {
			return n + bits.TrailingZeros64(stop)/8
		}
	}
	for ; n < len(b); n++ {
		if c := b[n]; c == '"' || c == '\\' || least != 0 && (c < ' ' || c >= 0x80) {
			return n
		}
	}
	return n
}
