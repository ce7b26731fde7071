// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// text is a checked JSON string: what stands between the quotes, a slice of the body.
type text struct {
	raw     []byte
	escaped bool // raw holds at least one backslash
}

// Tap sees the URL of a media part while the scanner passes it, and so while the body comes in.
type Tap interface {
	// Piece is called with what the URL holds, in order. Pieces are printable ASCII. The tap may write
	// over what it has seen, unless that is copied: what an escape stands for.
	Piece(b []byte, copied bool)
	// End is called at the end of the URL; whole is false if it holds anything but printable ASCII, of
	// which and of what follows the tap has seen nothing.
	End(whole bool)
	// Took says whether it has: the text of the URL is gone then.
	Took() bool
}

// str passes a string. The scanner stands on its opening quote.
//
// Data URLs of megabytes are one string, so the common way is one vectorised pass over each piece that comes.
func (s *scanner) str() (text, error) {
	open, start := s.i, s.i+1
	t := text{}
	at := start
	dirty := -1 // where the string has been looked at for quotes and escapes only, since it is no printable ASCII
	for {
		if dirty < 0 {
			at = s.see(start, at)
		} else {
			at += unquoted(s.b[at:])
		}
		if at == len(s.b) {
			if !s.fill() {
				return text{}, s.fail(open, "Unterminated string starting at")
			}
			continue
		}
		c := s.b[at]
		if c == '"' {
			break
		}
		if c != '\\' {
			dirty = at
			continue
		}
		t.escaped = true
		n, err := s.escape(open, at)
		if err != nil {
			return text{}, err
		}
		if s.tap != nil && dirty < 0 {
			dirty = s.seeEscape(start, at, n)
		}
		at += n
	}
	t.raw = s.b[start:at]
	if s.tap != nil {
		s.tap.End(dirty < 0)
	}
	if dirty >= 0 {
		if err := s.checkBytes(dirty, at); err != nil {
			return text{}, err
		}
	}
	s.i = at + 1
	return t, nil
}

// see looks at what has come from an offset on of the string that begins at start, as far as it is plain, and shows it
// to the tap. It returns where it stopped.
func (s *scanner) see(start, from int) int {
	to := from + plain(s.b[from:])
	if s.tap != nil && to > from {
		s.tap.Piece(s.b[from:to], false)
		s.mark(start, to)
	}
	return to
}

// seeEscape shows the tap what an escape of n bytes stands for. It returns -1, or where it stands if it
// stands for anything but printable ASCII: the tap sees no more then.
func (s *scanner) seeEscape(start, at, n int) int {
	v, _ := appendEscape(nil, s.b[at:at+n])
	if !printable(v) {
		return at
	}
	s.tap.Piece(v, true)
	s.mark(start, at+n)
	return -1
}

// mark notes that a tap has seen the string at start as far as end.
func (s *scanner) mark(start, end int) {
	if n := len(s.tapped); n > 0 && s.tapped[n-1].start == start {
		s.tapped[n-1].end = end
		return
	}
	s.tapped = append(s.tapped, span{start, end})
}

// escape checks the escape sequence at offset at, in the string that opens at open, and returns its length.
func (s *scanner) escape(open, at int) (int, error) {
	for at+6 > len(s.b) && s.fill() {
	}
	if at+1 >= len(s.b) {
		return 0, s.fail(open, "Unterminated string starting at")
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

// halfCharacter returns the first escape in checked JSON that stands for half of a character, a surrogate without its
// other half; nil if there is none. Where it is read, it reads as U+FFFD, which is another character.
func halfCharacter(raw []byte) []byte {
	for at := 0; ; {
		i := bytes.IndexByte(raw[at:], '\\')
		if i < 0 {
			return nil
		}
		at += i
		_, n := appendEscape(nil, raw[at:])
		if n == 6 && utf16.IsSurrogate(hex4(raw[at+2:at+6])) {
			return raw[at : at+6]
		}
		at += n
	}
}

// whole refuses a value of a parameter that an answer is held to or compared with, if no answer can have it.
func whole(param string, raw []byte) error {
	if half := halfCharacter(raw); half != nil {
		return badParam(param, "%s holds %s, half of a character, which no text can hold: write both halves, or the character itself.", param, half)
	}
	return nil
}

// hex4 reads four hex digits, -1 if they are none.
func hex4(b []byte) rune {
	v, err := strconv.ParseUint(string(b), 16, 16)
	if err != nil {
		return -1
	}
	return rune(v)
}
