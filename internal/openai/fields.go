// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"math"
	"strconv"
	"strings"
)

// fields holds the spans of the top-level values of a body. A value of null counts as absent
// wherever a field is read.
type fields map[string][]byte

// raw returns the value of a field, nil if it is absent or null.
func (f fields) raw(name string) []byte {
	if v := f[name]; len(v) > 0 && v[0] != 'n' {
		return v
	}
	return nil
}

// str reads a string.
func (f fields) str(name string) (string, error) {
	raw := f.raw(name)
	if raw == nil {
		return "", nil
	}
	v, ok := decodeString(raw)
	if !ok {
		return "", errField("string_type", name, "Input should be a valid string", pyValue(raw))
	}
	return v, nil
}

// cacheSalt reads a client's salt, by vLLM's rule.
func (f fields) cacheSalt() (string, error) {
	raw := f.raw("cache_salt")
	if raw == nil {
		return "", nil
	}
	v, ok := decodeString(raw)
	if !ok || v == "" {
		return "", badParam("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	}
	return v, nil
}

// boolean reads true or false; absent is false.
func (f fields) boolean(name string) (bool, error) { return decodeBool(f.raw(name), name) }

// decodeBool reads the value at loc. vLLM would take "yes" and 1 as well; a client that sends those for
// a switch is told.
func decodeBool(raw []byte, loc string) (bool, error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false", "", "null":
		return false, nil
	}
	return false, errField("bool_parsing", loc, "Input should be a valid boolean, unable to interpret input", pyValue(raw))
}

// integer reads a whole number; ok is false if it is absent. As with vLLM, 8.0 and "8" are whole
// numbers too.
func (f fields) integer(name string) (v int64, ok bool, err error) {
	raw := f.raw(name)
	if raw == nil {
		return 0, false, nil
	}
	word, kind := number(raw)
	if v, err := strconv.ParseInt(word, 10, 64); err == nil {
		return v, true, nil
	}
	x, err := strconv.ParseFloat(word, 64)
	switch {
	case err == nil && x == math.Trunc(x) && math.Abs(x) < 1<<53:
		return int64(x), true, nil
	case err == nil && kind == '0' && x != math.Trunc(x):
		return 0, false, errField("int_from_float", name,
			"Input should be a valid integer, got a number with a fractional part", pyValue(raw))
	case kind == '0':
		return 0, false, errField("int_parsing_size", name, "Unable to parse input as an integer, exceeded maximum size", pyValue(raw))
	case kind == '"':
		return 0, false, errField("int_parsing", name,
			"Input should be a valid integer, unable to parse string as an integer", pyValue(raw))
	}
	return 0, false, errField("int_type", name, "Input should be a valid integer", pyValue(raw))
}

// float reads a finite number; ok is false if it is absent. As with vLLM, "0.5" is a number too.
func (f fields) float(name string) (v float64, ok bool, err error) {
	raw := f.raw(name)
	if raw == nil {
		return 0, false, nil
	}
	word, kind := number(raw)
	v, err = strconv.ParseFloat(word, 64)
	switch {
	case err == nil && !math.IsInf(v, 0) && !math.IsNaN(v):
		return v, true, nil
	case err == nil || kind == '0':
		return 0, false, errField("finite_number", name, "Input should be a finite number", pyValue(raw))
	case kind == '"':
		return 0, false, errField("float_parsing", name,
			"Input should be a valid number, unable to parse string as a number", pyValue(raw))
	}
	return 0, false, errField("float_type", name, "Input should be a valid number", pyValue(raw))
}

// number returns the digits of a number or of a string, and which it is: '0', '"', or 0 for neither.
func number(raw []byte) (word string, kind byte) {
	switch c := raw[0]; {
	case c == '-' || '0' <= c && c <= '9':
		return string(raw), '0'
	case c == '"':
		s, _ := decodeString(raw)
		// ParseFloat would take 0x1p4 and 1_0 as well.
		if strings.ContainsAny(s, "xX_") {
			return "", '"'
		}
		return strings.TrimSpace(s), '"'
	}
	return "", 0
}

// decodeString returns the value of a checked JSON string.
func decodeString(raw []byte) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	s := scanner{b: raw}
	t, err := s.str()
	if err != nil {
		return "", false
	}
	return string(t.bytes()), true
}
