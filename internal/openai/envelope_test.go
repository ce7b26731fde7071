// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// drip is a body that comes in pieces of step bytes, in memory that does not move.
type drip struct {
	b, whole []byte
	step     int
	err      error // in the place of the end
}

func newDrip(body string, step int) *drip {
	return &drip{b: make([]byte, 0, len(body)+1), whole: []byte(body), step: step, err: io.EOF}
}

func (d *drip) Bytes() []byte { return d.b }

func (d *drip) More() error {
	n := min(d.step, len(d.whole)-len(d.b))
	if n == 0 {
		return d.err
	}
	d.b = append(d.b, d.whole[len(d.b):len(d.b)+n]...)
	return nil
}

// spoiler is a tap that writes over what it sees.
type spoiler struct {
	seen  strings.Builder
	whole bool
	takes bool
}

func (s *spoiler) Piece(b []byte, _ bool) {
	s.seen.Write(b)
	if s.takes {
		for i := range b {
			b[i] = 0xff
		}
	}
}
func (s *spoiler) End(whole bool) { s.whole = whole }
func (s *spoiler) Took() bool     { return s.takes && s.seen.Len() > 0 }

const twoMedia = ` {"model":"m" , "messages":[{"role":"user","content":[{"type":"text","text":"a"},` +
	`{"type":"image_url","image_url":{"url":"data:image\/png;base64,AAAA","detail":"low"}}, {"image_url":{"url":"data:,b"},"uuid":null,"type":"image_url"}]}],` +
	`"stream":true,"x":"é\n" } `

// TestEnvelope: it is the same however the body comes.
func TestEnvelope(t *testing.T) {
	for _, step := range []int{1, 2, 3, 7, 1000} {
		e, err := ReadEnvelope(newDrip(twoMedia, step), 2, func() Tap { return &spoiler{} })
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if !e.Stream || len(e.Media) != 2 || string(e.Raw("model")) != `"m"` || e.Raw("y") != nil || string(e.Body()) != twoMedia {
			t.Errorf("step %d: %+v", step, e)
		}
		for i, want := range []string{"data:image/png;base64,AAAA", "data:,b"} {
			m := e.Media[i]
			if tap := m.Tap.(*spoiler); string(m.URL) != want || tap.seen.String() != want || !tap.whole {
				t.Errorf("step %d: medium %d is %q, its tap saw %q", step, i, m.URL, tap.seen.String())
			}
		}
	}
}

// TestRewrite: what an edit does not concern stays to the byte.
func TestRewrite(t *testing.T) {
	f := func(body string, ed Edit, want string) {
		t.Helper()
		e, err := ReadEnvelope(newDrip(body, 5), 8, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(bytes.Join(e.Rewrite(ed), nil)); got != want {
			t.Errorf("%s with %+v:\n got %s\nwant %s", body, ed, got, want)
		}
	}
	set := func(names ...string) (out []Field) {
		for _, n := range names {
			out = append(out, Field{n, []byte("1")})
		}
		return out
	}
	f(twoMedia, Edit{}, twoMedia)
	f(` { } `, Edit{Set: set("a", "b")}, ` {"a":1,"b":1 } `)
	f(`{"a":0, "b":2}`, Edit{Set: set("b", "c", "a")}, `{"a":1, "b":1,"c":1}`)
	f(`{"a":0, "b":2 ,"c":3}`, Edit{Drop: []string{"a"}}, `{"b":2 ,"c":3}`)
	f(`{"a":0, "b":2 ,"c":3}`, Edit{Drop: []string{"b"}}, `{"a":0,"c":3}`)
	f(`{"a":0, "b":2 ,"c":3}`, Edit{Drop: []string{"c"}}, `{"a":0, "b":2}`)
	f(`{"a":0, "b":2}`, Edit{Drop: []string{"a", "b"}, Set: set("a")}, `{"a":1}`)
	f(`{"\u0061":0}`, Edit{Set: set("a")}, `{"\u0061":1}`)
	part := func(i int) [][]byte {
		if i == 1 {
			return nil
		}
		return [][]byte{[]byte("<"), []byte(">")}
	}
	f(`{"messages":[{"content":[{"type":"image_url"}, {"type":"video_url"} ,{"type":"audio_url"}]}]}`, Edit{Part: part},
		`{"messages":[{"content":[<>, {"type":"video_url"} ,<>]}]}`)
}

// TestPart names media and puts other URLs into them.
func TestPart(t *testing.T) {
	f := func(part, url, uuid, want string) {
		t.Helper()
		e, err := ReadEnvelope(newDrip(`{"messages":[{"content":[`+part+`]}]}`, 3), 8, nil)
		if err != nil {
			t.Fatal(err)
		}
		var with [][]byte
		if url != "" {
			with = [][]byte{[]byte(`"`), []byte(url), []byte(`"`)}
		}
		if got := string(bytes.Join(e.Part(0, with, uuid), nil)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", part, got, want)
		}
	}
	const p = `{"type":"image_url","image_url":{"url":"u","detail":"low"} }`
	f(p, "", "", p)
	f(p, "", "n", `{"type":"image_url","image_url":{"url":"u","detail":"low"} ,"uuid":"n"}`)
	f(p, "v", "n", `{"type":"image_url","image_url":{"url":"v","detail":"low"} ,"uuid":"n"}`)
	f(`{"uuid":null,"type":"image_url","image_url":"u"}`, "v", "n", `{"uuid":"n","type":"image_url","image_url":"v"}`)
	f(`{"type":"image_url","image_url":"u","uuid":7}`, "v", "n", `{"type":"image_url","image_url":"v","uuid":"n"}`)
	f(`{"type":"image_url","image_url":"u","uuid":"mine"}`, "", "", `{"type":"image_url","image_url":"u","uuid":"mine"}`)
	f(`{"type":"image_url","image_url":"u","uuid":"mine"}`, "", "n", `{"type":"image_url","image_url":"u","uuid":"n"}`)
	f(`{"uuid":"mine","type":"image_url"}`, "", "n", `{"uuid":"n","type":"image_url"}`)
}

// TestBrokenSource: why a body did not come goes before what it lacks.
func TestBrokenSource(t *testing.T) {
	gone := errors.New("gone")
	for n := range len(twoMedia) {
		d := newDrip(twoMedia[:n], 4)
		d.err = gone
		if _, err := ReadEnvelope(d, 2, nil); !errors.Is(err, gone) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
		d = newDrip(twoMedia[:n], 4)
		d.err = gone
		if _, err := ScanFrom(d, ScanLimits{MaxImages: 2}); !errors.Is(err, gone) {
			t.Fatalf("scan, after %d bytes: %v", n, err)
		}
	}
}

// TestFaultsBehindATakenURL are told at the same place as without a tap.
func TestFaultsBehindATakenURL(t *testing.T) {
	body := strings.Replace(twoMedia, `"x":"é\n"`, `"é":"y" z`, 1)
	limits := ScanLimits{MaxImages: 2}
	_, want := ScanFrom(newDrip(body, 9), limits)
	limits.Tap = func() Tap { return &spoiler{takes: true} }
	_, got := ScanFrom(newDrip(body, 9), limits)
	if want == nil || got == nil || got.Error() != want.Error() {
		t.Errorf("got %v, want %v", got, want)
	}
}

// FuzzEnvelope: whatever comes, however it comes, is refused with a 4xx or kept to the byte.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{twoMedia, `{}`, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"\u00e9\"x"},"uuid":"a"}]}]}`, `{"a":[{"b":1e5}],"stream":false}`, "{\"a\":\"\xff\"}"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, body string, step int) {
		whole, err := ReadEnvelope(newDrip(body, len(body)+1), 8, nil)
		e, err2 := ReadEnvelope(newDrip(body, 1+max(step, -step)%64), 8, nil)
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("whole: %v; in pieces: %v", err, err2)
		}
		if err != nil {
			if a := AsError(err); a.Status != 400 {
				t.Fatalf("%v is a %d", err, a.Status)
			}
			return
		}
		if !json.Valid([]byte(body)) {
			t.Fatalf("%q was taken", body)
		}
		if got := string(bytes.Join(e.Rewrite(Edit{}), nil)); got != body {
			t.Fatalf("%q became %q", body, got)
		}
		for i := range e.Media {
			if string(e.Media[i].URL) != string(whole.Media[i].URL) || !json.Valid(bytes.Join(e.Part(i, [][]byte{[]byte(`"v"`)}, "n"), nil)) {
				t.Fatalf("medium %d of %q", i, body)
			}
		}
		edited := bytes.Join(e.Rewrite(Edit{Part: func(int) [][]byte { return [][]byte{[]byte("0")} }, Set: []Field{{"a", []byte("1")}}, Drop: []string{"b"}}), nil)
		if !json.Valid(edited) {
			t.Fatalf("%q became %q", body, edited)
		}
	})
}
