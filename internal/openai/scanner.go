// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// maxDepth bounds nesting, and with it the recursion of the scanner. Chat bodies need about 8
// levels, tool schemas up to 30.
const maxDepth = 64

// Source is a body that may still be on its way in.
type Source interface {
	// Bytes returns what has come so far. What it returned before stays a part of it, in place.
	Bytes() []byte
	// More waits for more. After nil, Bytes has grown; after io.EOF the body is whole; other errors say
	// why it will not be.
	More() error
}

// scanner walks over strict JSON (RFC 8259) once, checking all that it passes. Spans that it
// returns are slices of the body.
type scanner struct {
	b     []byte
	i     int // next byte
	keyAt int // where the key of the latest member starts
	depth int

	src    Source // what b grows from; nil once b is whole
	broken error  // why src ended before the body did; it goes before what the scanner found
	tap    Tap    // sees the string that is being passed
	// tapped holds the strings that a tap has seen, which may have been written over. They are ASCII.
	tapped []span
}

// span is a part of the body.
type span struct{ start, end int }

// newScanner returns a scanner of what comes from src.
func newScanner(src Source) scanner { return scanner{b: src.Bytes(), src: src} }

// fill waits for more of the body and says whether any came.
func (s *scanner) fill() bool {
	if s.src == nil {
		return false
	}
	err := s.src.More()
	s.b = s.src.Bytes()
	if err == nil {
		return true
	}
	if err != io.EOF {
		s.broken = err
	}
	s.src = nil
	return false
}

// peek skips white space and returns the byte there, 0 at the end of the body.
func (s *scanner) peek() byte {
	for {
		for ; s.i < len(s.b); s.i++ {
			switch c := s.b[s.i]; c {
			case ' ', '\t', '\n', '\r':
			default:
				return c
			}
		}
		if !s.fill() {
			return 0
		}
	}
}

// fail returns the error for a fault at an offset.
func (s *scanner) fail(at int, why string) error {
	runes, from := 0, 0
	for _, t := range s.tapped {
		if t.end > at { // the fault is told where the string begins, or lies in it
			t.start, t.end = min(t.start, at), at
		}
		runes += utf8.RuneCount(s.b[from:t.start]) + t.end - t.start
		from = t.end
	}
	return errJSON(runes+utf8.RuneCount(s.b[from:at]), why)
}

// end fails if anything but white space is left.
func (s *scanner) end() error {
	if s.peek(); s.i < len(s.b) {
		return s.fail(s.i, "Extra data")
	}
	return nil
}

// value passes one value and returns its span.
func (s *scanner) value() ([]byte, error) {
	c := s.peek()
	start := s.i
	var err error
	switch c {
	case '{':
		_, err = s.object(s.skipMember)
	case '[':
		_, err = s.array(s.skipElement)
	case '"':
		_, err = s.str()
	case 't':
		err = s.literal("true")
	case 'f':
		err = s.literal("false")
	case 'n':
		err = s.literal("null")
	default:
		err = s.number()
	}
	if err != nil {
		return nil, err
	}
	return s.b[start:s.i], nil
}

// skipMember and skipElement pass a value that nobody reads.
func (s *scanner) skipMember([]byte) error { _, err := s.value(); return err }
func (s *scanner) skipElement(int) error   { _, err := s.value(); return err }

// enter passes the opening byte of a container.
func (s *scanner) enter() error {
	if s.depth++; s.depth > maxDepth {
		return badParam("body", "The body nests deeper than %d levels.", maxDepth)
	}
	s.i++
	return nil
}

// object passes an object and calls member for each key, undone of escapes, with the scanner in
// front of the value, which member must pass. It returns how many members there were.
func (s *scanner) object(member func(key []byte) error) (n int, err error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	if s.peek() == '}' {
		s.i++
		s.depth--
		return 0, nil
	}
	for {
		if s.peek() != '"' {
			return n, s.fail(s.i, "Expecting property name enclosed in double quotes")
		}
		at := s.i
		key, err := s.str()
		if err != nil {
			return n, err
		}
		s.keyAt = at
		if s.peek() != ':' {
			return n, s.fail(s.i, "Expecting ':' delimiter")
		}
		s.i++
		if err := member(key.bytes()); err != nil {
			return n, err
		}
		n++
		if more, err := s.next('}'); !more {
			return n, err
		}
	}
}

// array passes an array and calls element with the scanner in front of each element, which element
// must pass. It returns how many elements there were.
func (s *scanner) array(element func(i int) error) (n int, err error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	if s.peek() == ']' {
		s.i++
		s.depth--
		return 0, nil
	}
	for {
		if err := element(n); err != nil {
			return n, err
		}
		n++
		if more, err := s.next(']'); !more {
			return n, err
		}
	}
}

// next passes a comma (more follows) or the closing byte.
func (s *scanner) next(closing byte) (more bool, err error) {
	switch s.peek() {
	case ',':
		s.i++
		return true, nil
	case closing:
		s.i++
		s.depth--
		return false, nil
	}
	return false, s.fail(s.i, "Expecting ',' delimiter")
}

// once guards a key that may stand only once: bit marks it in seen.
func once(seen *uint, bit uint, path, key string) error {
	if *seen&(1<<bit) != 0 {
		return badParam(join(path, key), "The key `%s` stands twice in one object.", key)
	}
	*seen |= 1 << bit
	return nil
}

// join appends a key to a JSON path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return fmt.Sprintf("%s.%s", path, key)
}
