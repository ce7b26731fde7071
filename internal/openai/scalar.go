// SPDX-License-Identifier: Apache-2.0

package openai

// literal passes true, false or null.
func (s *scanner) literal(word string) error {
	for len(s.b)-s.i < len(word) && s.fill() {
	}
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return s.fail(s.i, "Expecting value")
	}
	s.i += len(word)
	return nil
}

// number passes -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?.
func (s *scanner) number() error {
	start := s.i
	if s.at('-') {
		s.i++
	}
	if s.at('0') {
		s.i++
	} else if !s.digits() {
		return s.fail(start, "Expecting value")
	}
	if s.at('.') {
		if s.i++; !s.digits() {
			return s.fail(s.i, "Expecting digits after the decimal point")
		}
	}
	if s.at('e') || s.at('E') {
		if s.i++; s.at('+') || s.at('-') {
			s.i++
		}
		if !s.digits() {
			return s.fail(s.i, "Expecting digits in the exponent")
		}
	}
	return nil
}

// at says whether the next byte is c; white space counts.
func (s *scanner) at(c byte) bool { return (s.i < len(s.b) || s.fill()) && s.b[s.i] == c }

// digits passes digits and says whether there was one.
func (s *scanner) digits() bool {
	start := s.i
	for (s.i < len(s.b) || s.fill()) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}
