// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// text is a checked JSON string: what stands between the quotes, a slice of the body.
type text struct {
	raw     []byte
	escaped bool // raw holds at least one backslash
}

// str passes a string. The scanner stands on its opening quote.
//
// Data URLs of megabytes are one string, so the common way is three vectorised passes over it: find
// the quote, look for a backslash, look for bytes that are no printable ASCII.
func (s *scanner) str() (text, error) {
	start := s.i + 1
	quote := start + bytes.IndexByte(s.b[start:], '"')
	if quote < start {
		return text{}, s.fail(s.i, "Unterminated string starting at")
	}
	t := text{}
	for at := start; ; {
		esc := bytes.IndexByte(s.b[at:quote], '\\')
		if esc < 0 {
			break
		}
		t.escaped = true
		n, err := s.escape(at + esc)
		if err != nil {
			return text{}, err
		}
		// quote stays where it is until an escape swallows it: each byte is searched once.
		if at += esc + n; at > quote {
			next := bytes.IndexByte(s.b[at:], '"')
			if next < 0 {
				return text{}, s.fail(s.i, "Unterminated string starting at")
			}
			quote = at + next
		}
	}
	t.raw = s.b[start:quote]
	if !printable(t.raw) {
		if err := s.checkBytes(start, quote); err != nil {
			return text{}, err
		}
	}
	s.i = quote + 1
	return t, nil
}

// escape checks the escape sequence at offset at and returns its length.
func (s *scanner) escape(at int) (int, error) {
	if at+1 >= len(s.b) {
		return 0, s.fail(s.i, "Unterminated string starting at")
	}
	switch s.b[at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		if at+6 <= len(s.b) && hex4(s.b[at+2:at+6]) >= 0 {
			return 6, nil
		}
		return 0, s.fail(at, "Invalid \\uXXXX escape")
	}
	return 0, s.fail(at, "Invalid \\escape")
}

// checkBytes refuses control characters and bytes that are not UTF-8.
func (s *scanner) checkBytes(start, end int) error {
	for i := start; i < end; {
		c := s.b[i]
		if c < ' ' {
			return s.fail(i, "Invalid control character at")
		}
		if c < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(s.b[i:end])
		if r == utf8.RuneError && n == 1 {
			return s.fail(i, "Invalid UTF-8")
		}
		i += n
	}
	return nil
}

// printable says whether every byte is in 0x20..0x7f.
func printable(b []byte) bool {
	const high, space = 0x8080808080808080, 0x2020202020202020
	for ; len(b) >= 32; b = b[32:] {
		v0, v1 := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		v2, v3 := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		// A byte below 0x20 borrows in v-space and sets its high bit; no word with such a byte can
		// come out clean, because the lowest one always shows.
		if (v0|v1|v2|v3|(v0-space)|(v1-space)|(v2-space)|(v3-space))&high != 0 {
			return false
		}
	}
	for _, c := range b {
		if c < ' ' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// bytes returns the string's value: raw itself when there is nothing to undo, else a copy.
func (t text) bytes() []byte {
	if !t.escaped {
		return t.raw
	}
	out := make([]byte, 0, len(t.raw))
	rest := t.raw
	for {
		esc := bytes.IndexByte(rest, '\\')
		if esc < 0 {
			return append(out, rest...)
		}
		out = append(out, rest[:esc]...)
		var n int
		out, n = appendEscape(out, rest[esc:])
		rest = rest[esc+n:]
	}
}

// appendEscape undoes the checked escape at the start of b and returns its length.
func appendEscape(out, b []byte) ([]byte, int) {
	switch c := b[1]; c {
	case 'b':
		return append(out, '\b'), 2
	case 'f':
		return append(out, '\f'), 2
	case 'n':
		return append(out, '\n'), 2
	case 'r':
		return append(out, '\r'), 2
	case 't':
		return append(out, '\t'), 2
	case 'u':
	default:
		return append(out, c), 2
	}
	r := hex4(b[2:6])
	if utf16.IsSurrogate(r) {
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(b[8:12])); pair != utf8.RuneError {
				return utf8.AppendRune(out, pair), 12
			}
		}
		r = utf8.RuneError
	}
	return utf8.AppendRune(out, r), 6
}

// hex4 reads four hex digits, -1 if they are none.
func hex4(b []byte) rune {
	v, err := strconv.ParseUint(string(b), 16, 16)
	if err != nil {
		return -1
	}
	return rune(v)
}
