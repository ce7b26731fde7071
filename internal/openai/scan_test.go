// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// scanLimits are those of most tests.
var scanLimits = ScanLimits{MaxImages: 32}

// user wraps content, which is JSON, in a body of one user message.
func user(content string) string {
	return `{"model":"m","messages":[{"role":"user","content":` + content + `}]}`
}

const imageA = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`
const imageB = `{"image_url":{"detail":"low","url":"http://h/b.png"},"uuid":"b","type":"image_url"}`

func TestScanFields(t *testing.T) {
	body := `{"stream":true,"n":2,"user":"u","model":"m","stream_options":{"include_usage":true},"unknown":[{"messages":1}],"messages":[` +
		`{"role":"system","content":"s"},{"role":"user","content":["look",` + imageA + `,{"type":"text","text":"and"},` + imageB + `]},` +
		`{"role":"assistant","content":null},{"content":[` + imageA + `],"role":"tool","tool_call_id":"x"}]}`
	got, err := Scan([]byte(body), scanLimits)
	if err != nil {
		t.Fatal(err)
	}
	want := &Request{
		Model: "m", User: "u", Stream: true, N: 2, IncludeUsage: true, Messages: 4,
		Media: []MediaPart{
			{Path: "messages[1].content[1]", Message: 1, Part: 1, Kind: "image_url", URL: []byte("data:image/png;base64,AAAA")},
			{Path: "messages[1].content[3]", Message: 1, Part: 3, Kind: "image_url", URL: []byte("http://h/b.png"), UUID: "b", HasUUID: true},
			{Path: "messages[3].content[0]", Message: 3, Part: 0, Kind: "image_url", URL: []byte("data:image/png;base64,AAAA")},
		},
	}
	opts := []cmp.Option{cmpopts.IgnoreUnexported(Request{}), cmpopts.IgnoreFields(MediaPart{}, "Start", "End")}
	if d := cmp.Diff(want, got, opts...); d != "" {
		t.Error(d)
	}
	for i, wantSpan := range []string{imageA, imageB, imageA} {
		if m := got.Media[i]; body[m.Start:m.End] != wantSpan {
			t.Errorf("span %d is %s", i, body[m.Start:m.End])
		}
	}
}

func TestScanDoesNotCopyURL(t *testing.T) {
	body := []byte(user("[" + imageA + "]"))
	r, err := Scan(body, scanLimits)
	if err != nil {
		t.Fatal(err)
	}
	url := r.Media[0].URL
	lo, hi := uintptr(unsafe.Pointer(&body[0])), uintptr(unsafe.Pointer(&body[len(body)-1]))
	if p := uintptr(unsafe.Pointer(&url[0])); p < lo || p > hi {
		t.Error("URL is not a slice of the body")
	}
}

// TestScanURL is the JSON side of I09: whatever a client writes inside the string arrives unchanged
// at the one parser of data URLs.
func TestScanURL(t *testing.T) {
	for _, url := range []string{
		"DATA:image/png;base64,AAAA", "data:image/png;charset=utf-8;base64,AAAA", "data:;base64,AA==", "data:image/svg+xml,<svg/>",
		"data:image/png;base64,AA\r\nAA", "data:image/png;base64,-_-_", "data:image/png;base64", "data:image/png,%89PNG", "AAAA",
		"data:image/png;base64,data:image/png;base64,AAAA", "data:image/png;base64,", "http://h/ü?q=\"\\", "  x ", "\u2028\U0001F600",
	} {
		quoted, err := json.Marshal(url)
		if err != nil {
			t.Fatal(err)
		}
		slashes := strings.ReplaceAll(string(quoted), "/", `\/`)
		for _, q := range []string{string(quoted), slashes} {
			r, err := Scan([]byte(user(`[{"type":"image_url","image_url":{"url":`+q+`}}]`)), scanLimits)
			if err != nil {
				t.Errorf("%s: %v", q, err)
			} else if got := string(r.Media[0].URL); got != url {
				t.Errorf("%s: got %q, want %q", q, got, url)
			}
		}
	}
}

func TestScanUUID(t *testing.T) {
	f := func(part string, uuid string, only bool) {
		t.Helper()
		r, err := Scan([]byte(user("["+part+"]")), scanLimits)
		if err != nil {
			t.Fatal(err)
		}
		m := r.Media[0]
		if m.UUID != uuid || m.HasUUID != (uuid != "") || m.UUIDOnly != only {
			t.Errorf("%s: got %+v", part, m)
		}
	}
	f(`{"type":"image_url","uuid":"x","image_url":null}`, "x", true)
	f(`{"type":"image_url","uuid":"x"}`, "x", true)
	f(`{"type":"image_url","uuid":"x","image_url":{"url":"u"}}`, "x", false)
	f(`{"type":"image_url","uuid":null,"image_url":{"url":"u"}}`, "", false)
	f(`{"type":"image_url","uuid":"","image_url":{"url":"u"}}`, "", false)
}

// TestScanRefuses is case P09: each fault is a 400 that names the place.
func TestScanRefuses(t *testing.T) {
	f := func(body, param, message string) {
		t.Helper()
		_, err := Scan([]byte(body), ScanLimits{MaxImages: 2})
		if err == nil {
			t.Errorf("accepted: %s", body)
			return
		}
		e := AsError(err)
		if e.Status != 400 || e.Param != param || !strings.Contains(e.Message, message) {
			t.Errorf("%s:\n got %d %q %q\nwant 400 %q %q", body, e.Status, e.Param, e.Message, param, message)
		}
	}
	const part = "messages[0].content[0]"
	f(user(`[{"type":"image_url","image_url":"http://x"}]`), part+".image_url", "must be an object")
	f(user(`[{"type":"image_url","image_url":{"url":""}}]`), part+".image_url.url", "must not be empty")
	f(user(`[{"type":"image_url","image_url":{"url":null}}]`), part+".image_url.url", "got null")
	f(user(`[{"type":"image_url","image_url":{}}]`), part+".image_url.url", "got nothing")
	f(user(`[{"type":"image_url","image_url":null}]`), part+".image_url", "is required")
	f(user(`[{"type":"image_url"}]`), part+".image_url", "is required")
	f(user(`[{"type":"image_url","uuid":7,"image_url":{"url":"x"}}]`), part+".uuid", "got a number")
	f(user(`[{"type":"image_url","image_url":{"url":"x","url":"y"}}]`), part+".image_url.url", "twice")
	f(user(`[{"type":"image_url","image_url":{"url":"x"},"image_\u0075rl":{"url":"y"}}]`), part+".image_url", "twice")
	f(user(`[{"image_url":{"url":"x"}}]`), part+".type", "is required")
	f(user(`[{"type":null,"text":"x"}]`), part+".type", "got null")
	f(user(`[{"type":"picture","image_url":{"url":"x"}}]`), part+".type", `"picture" is not known`)
	f(user(`[{"type":"afterimage_item","index":0}]`), part+".type", "is not known")
	f(user(`[{"type":"text","text":"x","image_url":{"url":"x"}}]`), part, "has an image_url")
	f(user(`[{"type":"text","text":"x","image":"AAAA"}]`), part+".image", "not understood")
	f(user(`[{"type":"text"}]`), part+".text", "got nothing")
	f(user(`[{"type":"text","text":null}]`), part+".text", "got null")
	f(user(`[{"type":"video_url","video_url":{"url":"x"}}]`), "video", "At most 0 video(s)")
	f(user(`[{"type":"input_audio","input_audio":{}}]`), "audio", "At most 0 audio(s)")
	f(user(`["a",7]`), "messages[0].content[1]", "got a number")
	f(user(`[]`), "messages[0].content", "at least one part")
	f(user(`null`), "messages[0].content", "must not be null")
	f(user(`7`), "messages[0].content", "got a number")
	f(user("["+imageA+","+imageA+","+imageA+"]"), "image", "At most 2 image(s)")
	f(`{"messages":"hi"}`, "body.messages", "Input should be a valid list', 'input': 'hi'")
	f(`{"messages":7}`, "body.messages", "'input': 7")
	f(`{"messages":null}`, "body.messages", "'input': None")
	f(`{"messages":[7]}`, "messages[0]", "must be an object")
	f(`{"messages":[{"content":"x"}]}`, "messages[0].role", "is required")
	f(`{"messages":[{"role":7,"content":"x"}]}`, "messages[0].role", "got a number")
	f(`{"messages":[{"role":"user"}]}`, "messages[0].content", "is required")
	f(`{"messages":[{"role":"user","content":"x","images":["AAAA"]}]}`, "messages[0].images", "not understood")
	f(`{"messages":[],"messages":[]}`, "messages", "twice")
	f(`{"model":"a","model":"b","messages":[]}`, "model", "twice")
	f(`{"model":7,"messages":[{"role":"user","content":"x"}]}`, "body.model", "valid string")
	f(`{"stream":"yes","messages":[{"role":"user","content":"x"}]}`, "body.stream", "valid boolean")
	f(`{"n":0,"messages":[{"role":"user","content":"x"}]}`, "n", "n must be at least 1, got 0. (parameter=n, value=0)")
	f(strings.Repeat("[", 65), "body", "deeper than 64")
	f(``, "body", "Field required")
	f(`null`, "body", "valid dictionary")
	f(`{"messages":[]} x`, "body.16", "Extra data")
}

func TestSplice(t *testing.T) {
	const gap = `"\u00e4 ü",` + "\n\t"
	body := `{ "messages" : [ {"role":"user","content":[` + imageA + `,` + gap + imageB + `,` + imageA + ` ] } ] , "x" : 1.0e+00 } `
	want := `{ "messages" : [ {"role":"user","content":[{"i":0},` + gap + imageB + `,{"i":3} ] } ] , "x" : 1.0e+00 } `
	r, err := Scan([]byte(body), scanLimits)
	if err != nil {
		t.Fatal(err)
	}
	got := r.Splice(func(i int) []byte {
		if i == 1 {
			return nil
		}
		return fmt.Appendf(nil, `{"i":%d}`, r.Media[i].Part)
	})
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if same := r.Splice(func(int) []byte { return nil }); string(same) != body {
		t.Errorf("nothing replaced: got %s", same)
	}
}

// TestScanOrder is the parsing side of P11: parts carry their place, whatever stands between them.
func TestScanOrder(t *testing.T) {
	f := func(body string, want ...string) {
		t.Helper()
		r, err := Scan([]byte(body), scanLimits)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range r.Media {
			got = append(got, m.Path+" "+string(m.URL))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	const a, b, text = "data:image/png;base64,AAAA", "http://h/b.png", `{"type":"text","text":"t"}`
	f(user("["+imageA+","+imageB+"]"), "messages[0].content[0] "+a, "messages[0].content[1] "+b)
	f(user("["+imageA+","+imageA+"]"), "messages[0].content[0] "+a, "messages[0].content[1] "+a)
	f(user("["+imageA+","+imageB+","+imageA+"]"), "messages[0].content[0] "+a, "messages[0].content[1] "+b, "messages[0].content[2] "+a)
	f(user("["+imageA+","+text+"]"), "messages[0].content[0] "+a)
	f(user("["+text+","+imageA+"]"), "messages[0].content[1] "+a)
	f(`{"messages":[{"role":"user","content":[`+imageA+`]},{"role":"assistant","content":"x"},{"role":"user","content":["q",`+imageB+`]}]}`,
		"messages[0].content[0] "+a, "messages[2].content[1] "+b)
}

func bigBody(n int) []byte {
	data := base64.StdEncoding.EncodeToString(make([]byte, n*3/4))
	return []byte(user(`[{"type":"text","text":"What?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}]`))
}

func BenchmarkScan4MiB(b *testing.B) {
	body := bigBody(4 << 20)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Scan(body, scanLimits); err != nil {
			b.Fatal(err)
		}
	}
}
