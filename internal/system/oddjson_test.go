// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// TestOddButLegalJSON sends one recorded request in every dress that JSON allows. All mean the same, so
// all get the same answer.
func TestOddButLegalJSON(t *testing.T) {
	f := newFleet(t, nil)
	plain := string(goldenRequest(t, "image2"))
	status, _, body := f.postRaw(t, []byte(plain))
	want := content(t, status, body)

	edit := func(old, new string) string {
		t.Helper()
		if !strings.Contains(plain, old) {
			t.Fatalf("the request has no %s", old)
		}
		return strings.ReplaceAll(plain, old, new)
	}
	var wide, tight bytes.Buffer
	if err := json.Indent(&wide, []byte(plain), "\r\n\t ", "\t  "); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&tight, []byte(plain)); err != nil {
		t.Fatal(err)
	}
	for name, dressed := range map[string]string{
		"compact":                  tight.String(),
		"white space":              " \r\n\t" + wide.String() + "\t\n\r ",
		"every character escaped":  redress(t, plain, escape, nil),
		"members reversed":         redress(t, plain, nil, slices.Reverse),
		"escaped and reversed":     redress(t, plain, escape, slices.Reverse),
		"escaped solidus":          edit("/", `\/`),
		"integer as a float":       edit(`"max_tokens": 8`, `"max_tokens": 8.0`),
		"integer with an exponent": edit(`"max_tokens": 8`, `"max_tokens": 80e-1`),
		"zero as a float":          edit(`"temperature": 0`, `"temperature": -0.0E+5`),
		"nulls for defaults": edit(`"seed": 0`, `"seed": 0, "stop": null, "n": null, "tools": null, "stream": null, "stream_options": null,
			"top_p": null, "response_format": null, "user": null, "logit_bias": null, "max_completion_tokens": null`),
		"values that are the defaults": edit(`"seed": 0`, `"seed": 0, "n": 1, "top_p": 1, "stream": false, "stop": [], "tools": [], "logprobs": false,
			"presence_penalty": 0, "frequency_penalty": 0.0, "response_format": {"type": "text"}, "logit_bias": {}, "metadata": {"a": "b"}, "store": false`),
		"unknown members":    edit(`"type": "text"`, `"x": {"messages": [{"content": "]}\"", "image_url": [1, -2.5e3, true, null, {}]}]}, "type": "text", "": []`),
		"extras of an image": edit(`"url": "data:`, `"detail": "high", "url": "data:`),
	} {
		t.Run(name, func(t *testing.T) {
			if !json.Valid([]byte(dressed)) {
				t.Fatal("the test sends what is no JSON")
			}
			status, _, body := f.postRaw(t, []byte(dressed))
			if got := content(t, status, body); got != want {
				t.Errorf("answered %q, want %q", got, want)
			}
		})
	}
}

// TestTextOfAnyScript compares raw with escaped text, surrogate pairs included.
func TestTextOfAnyScript(t *testing.T) {
	f := newFleet(t, nil)
	ask := func(text string) string {
		t.Helper()
		status, _, body := f.postRaw(t, fmt.Appendf(nil, `{"temperature":0,"messages":[{"role":"user","content":"%s"}]}`, text))
		return content(t, status, body)
	}
	for _, s := range []string{"Grüße", "漢字かな", "🎨👩‍🚀", "a\u0000b", "\u2028\u2029\ufeff", "\U0010ffff"} {
		raw := strings.ReplaceAll(s, "\x00", `\u0000`)
		if got, want := ask(strings.Trim(escape(s), `"`)), ask(raw); got != want {
			t.Errorf("%q: escaped it is answered %q, raw %q", s, got, want)
		}
	}
	if ask("🎨") == ask("👩") {
		t.Error("the answer does not depend on the text")
	}
}

// escape writes a JSON string in which nothing but the quotes stands for itself.
func escape(s string) string {
	b := []byte{'"'}
	for _, u := range utf16.Encode([]rune(s)) {
		b = fmt.Appendf(b, `\u%04X`, u)
	}
	return string(append(b, '"'))
}

// redress writes a JSON text anew: strings by str, members of objects in the order that order gives them.
func redress(t *testing.T, text string, str func(string) string, order func([]string)) string {
	t.Helper()
	if str == nil {
		str = func(s string) string { b, _ := json.Marshal(s); return string(b) }
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var value func() string
	value = func() string {
		tok, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch v := tok.(type) {
		case json.Delim:
			var members []string
			for dec.More() {
				m := value()
				if v == '{' {
					m += ":" + value()
				}
				members = append(members, m)
			}
			if _, err := dec.Token(); err != nil {
				t.Fatal(err)
			}
			if v == '{' && order != nil {
				order(members)
			}
			if v == '{' {
				return "{" + strings.Join(members, ",") + "}"
			}
			return "[" + strings.Join(members, ",") + "]"
		case string:
			return str(v)
		case nil:
			return "null"
		default:
			return fmt.Sprint(v)
		}
	}
	return value()
}
