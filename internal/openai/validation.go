// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// This file words faults in the form of a body as vLLM's validation does, Python notation included.

// errJSON is the error for a body that is no JSON. Like Python it counts characters, not bytes.
func errJSON(at int, why string) error {
	loc := fmt.Sprintf("body.%d", at)
	return &Error{
		Status: http.StatusBadRequest, Type: TypeValidation, Param: loc,
		Message: fmt.Sprintf("1 validation error:\n  {'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', "+
			"'input': '<dict of 0 items>', 'ctx': {'error': %s}}", loc, pyString(why)),
	}
}

// errField is the error for a field of the wrong form. loc is the path below the body, "" for the
// body itself; input is Python notation.
func errField(kind, loc, msg, input string) *Error {
	loc = strings.TrimSuffix("body."+loc, ".")
	return &Error{
		Status: http.StatusBadRequest, Type: TypeValidation, Param: loc,
		Message: fmt.Sprintf("1 validation error:\n  {'type': '%s', 'loc': '%s', 'msg': %s, 'input': %s}",
			kind, loc, pyString(msg), input),
	}
}

// maxShown bounds the characters of a client's value in an error.
const maxShown = 100

// pyValue prints a checked JSON value in Python notation; containers as their size.
func pyValue(raw []byte) string {
	switch raw[0] {
	case '"':
		s := scanner{b: raw}
		t, err := s.str()
		if err != nil {
			return "'?'"
		}
		return pyString(Shorten(string(t.bytes())))
	case '{', '[':
		return countItems(raw)
	case 't':
		return "True"
	case 'f':
		return "False"
	case 'n':
		return "None"
	}
	if bytes.ContainsAny(raw, ".eE") {
		if f, err := strconv.ParseFloat(string(raw), 64); err == nil {
			return PyFloat(f)
		}
	}
	return Shorten(string(raw))
}

// pySize stands for a container, whose content is too long for an error.
func pySize(kind string, n int) string { return fmt.Sprintf("'<%s of %d items>'", kind, n) }

// countItems prints a checked container as its size.
func countItems(raw []byte) string {
	s := scanner{b: raw}
	if raw[0] == '{' {
		n, _ := s.object(s.skipMember)
		return pySize("dict", n)
	}
	n, _ := s.array(s.skipElement)
	return pySize("list", n)
}

// pyString quotes s as Python's repr does.
func pyString(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	out := []byte{quote}
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			out = append(out, '\\', byte(r))
		case r == '\n':
			out = append(out, `\n`...)
		case r == '\r':
			out = append(out, `\r`...)
		case r == '\t':
			out = append(out, `\t`...)
		case r < ' ' || r == 0x7f:
			out = fmt.Appendf(out, `\x%02x`, r)
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return string(append(out, quote))
}

// PyFloat prints f as Python's repr does.
func PyFloat(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'f', -1, 64), "+"))
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Shorten keeps the head of a long text that a client wrote: 100 characters, and "..." if there is more.
func Shorten(s string) string {
	n := 0
	for i := range s {
		if n == maxShown {
			return s[:i] + "..."
		}
		n++
	}
	return s
}
