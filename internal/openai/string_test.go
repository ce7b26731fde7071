// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// checkAgainstJSON holds the scanner to encoding/json: never more lenient, and stricter only where
// the package says so. The decoded top-level string, if it is one, is equal.
func checkAgainstJSON(t *testing.T, body []byte) {
	t.Helper()
	s := scanner{b: body}
	raw, err := s.value()
	if err == nil {
		err = s.end()
	}
	valid := json.Valid(body)
	if err == nil && !valid {
		t.Fatalf("accepted what encoding/json refuses: %q", body)
	}
	if err != nil {
		tooDeep := strings.Contains(err.Error(), "deeper")
		if valid && utf8.Valid(body) && !tooDeep {
			t.Fatalf("refused %q: %v", body, err)
		}
		return
	}
	if raw[0] != '"' {
		return
	}
	var want string
	if err := json.Unmarshal(body, &want); err != nil {
		t.Fatal(err)
	}
	got, ok := decodeString(raw)
	if !ok || got != want {
		t.Fatalf("%q: got %q, want %q", body, got, want)
	}
	var again string
	if err := json.Unmarshal(AppendString(nil, want), &again); err != nil || again != want {
		t.Fatalf("%q written as %s", want, AppendString(nil, want))
	}
}

var jsonSeeds = []string{
	`0`, `-0`, `-`, `01`, `1.`, `1.5e`, `1E+`, `1e-10`, `.5`, `+1`, `0x10`, `NaN`, `Infinity`, `true`, `tru`, `truE`, `nulll`, `[]`, `[1,]`, `[,1]`, `[1 2]`,
	`{}`, `{"a":1,}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{"a":}`, "\ufeff{}", ` [ { "a" : [ ] } ] `, `[1]]`, `{"a":1}}`, `[`, `{`, `"`, `{"a`, `["a`,
	`"\"`, `"\\"`, `"\\\""`, `"\u12"`, `"\u12G4"`, `"\uD83D\uDE00"`, `"\uD83D"`, `"\uDE00\uD83D"`, `"\uD83Dx\uDE00"`, `"\x"`, `"\`, `"\u`,
	"\"\x00\"", "\"\x1f\"", "\"\x7f\"", "\"\n\"", "\"\x80\"", "\"\xc3\x28\"", "\"\xed\xa0\x80\"", "\"ü\u2028😀\"", `"\b\f\n\r\t\/"`,
	`"` + strings.Repeat("a", 31) + "\x1f" + `"`, `"` + strings.Repeat("a", 64) + `\n"`, `"` + strings.Repeat("ü", 40) + `"`, `"` + strings.Repeat(`\n`, 40) + `"`,
	strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65),
}

func TestScannerAgainstJSON(t *testing.T) {
	for _, s := range jsonSeeds {
		checkAgainstJSON(t, []byte(s))
	}
	// Every byte at every offset of the vectorised check.
	for at := range 70 {
		for c := range 256 {
			b := []byte(`"` + strings.Repeat("a", 70) + `"`)
			b[1+at] = byte(c)
			checkAgainstJSON(t, b)
		}
	}
}

func FuzzScanner(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkAgainstJSON(t, body) })
}

// FuzzScan checks that what Scan and ParseChat accept is JSON, that every refusal is a 400, and that
// splicing yields JSON in which P/D finds as many items as there were media parts.
func FuzzScan(f *testing.F) {
	f.Add([]byte(user("[" + imageA + `,"x",` + imageB + "]")))
	f.Add([]byte(user(`"x"`)))
	for _, name := range []string{"image_uuid_only", "err_not_json", "err_bad_url_scheme"} {
		f.Add(golden(f, name+".request.json"))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Scan(body, scanLimits)
		if err != nil {
			if e := AsError(err); e.Status != 400 || !json.Valid(e.AppendJSON(nil)) {
				t.Fatalf("status %d: %v", e.Status, err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("accepted %q", body)
		}
		for _, m := range r.Media {
			if !json.Valid(body[m.Start:m.End]) || body[m.Start] != '{' {
				t.Fatalf("span %q", body[m.Start:m.End])
			}
		}
		small := r.Splice(func(i int) []byte {
			return append(strconv.AppendInt([]byte(`{"type":"afterimage_item","index":`), int64(i), 10), '}')
		})
		if !json.Valid(small) {
			t.Fatalf("spliced %q", small)
		}
		c, err := ParseChat(small)
		if err != nil {
			return
		}
		if c.Items() != len(r.Media) || len(c.Messages) != r.Messages {
			t.Fatalf("got %d items and %d messages of %d and %d", c.Items(), len(c.Messages), len(r.Media), r.Messages)
		}
	})
}

// TestScanLinear feeds strings in which every byte is searched for again by a scanner that forgets
// where the closing quote is.
func TestScanLinear(t *testing.T) {
	for _, unit := range []string{`\n`, `\"`, `\u00e4`, "ü", `\\`} {
		s := scanner{b: []byte(`"` + strings.Repeat(unit, 4<<20/len(unit)) + `"`)}
		if _, err := s.value(); err != nil || s.i != len(s.b) {
			t.Errorf("%s: %v", unit, err)
		}
	}
}

// TestHalfCharacter finds a surrogate without its other half, and takes nothing else for one.
func TestHalfCharacter(t *testing.T) {
	f := func(raw, want string) {
		t.Helper()
		if got := string(halfCharacter([]byte(raw))); got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
	f(`"\ud800"`, `\ud800`)
	f(`{"enum":["a\uD83D\uDE00b","\udfffx"]}`, `\udfff`)
	f(`"\uDE00\uD83D"`, `\uDE00`)
	f(`"\ud83d\ud83d\ude00"`, `\ud83d`)
	f(`"\ud83d\n\ude00"`, `\ud83d`)
	f(`"\\ud800"`, "")
	f(`"\\\ud800"`, `\ud800`)
	f(`"\ud83d\ude00\ufffd\n\"é"`, "")
	f(`{}`, "")
}
