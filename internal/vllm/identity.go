// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"

	"afterimage/internal/openai"
)

// contentUUID names media part i by what it holds, as vLLM's proxy does: the SHA-256 of its URL or, if it
// has none, of its JSON as Python writes it with sorted keys.
func (n *names) contentUUID(e *openai.Envelope, i int) string {
	m := &e.Media[i]
	if len(m.URL) == 0 {
		return nameOf(pythonJSON(e.Body()[m.Start:m.End]))
	}
	tap, _ := m.Tap.(*digesting)
	return n.of(m.URL, tap)
}

// nameOf returns the name of a text in pieces.
func nameOf(pieces ...[]byte) string {
	h := sha256.New()
	for _, p := range pieces {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// pythonJSON rewrites JSON as json.dumps(…, sort_keys=True) does. raw has been checked.
func pythonJSON(raw []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return raw
	}
	return appendPython(nil, v)
}

func appendPython(dst []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		dst = append(dst, '{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendPython(append(appendASCII(dst, k), ": "...), v[k])
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i, x := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendPython(dst, x)
		}
		return append(dst, ']')
	case string:
		return appendASCII(dst, v)
	case json.Number:
		if bytes.ContainsAny([]byte(v), ".eE") {
			if f, err := v.Float64(); err == nil {
				return append(dst, openai.PyFloat(f)...)
			}
		}
		return append(dst, v...)
	case bool:
		return strconv.AppendBool(dst, v)
	}
	return append(dst, "null"...)
}

// appendASCII appends a JSON string with every character beyond ASCII escaped.
func appendASCII(dst []byte, s string) []byte {
	for _, r := range string(openai.AppendString(nil, s)) {
		switch {
		case r < 0x80:
			dst = append(dst, byte(r))
		case r > 0xffff:
			a, b := utf16.EncodeRune(r)
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, a, b)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
	}
	return dst
}
