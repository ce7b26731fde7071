// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/gateway"
)

// failure is an error as a client reads it.
type failure struct {
	Message string
	Type    string
	Param   string
	Code    int
}

func parseFailure(t *testing.T, body string) failure {
	t.Helper()
	var e struct{ Error *failure }
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil {
		t.Fatalf("not an error in OpenAI's shape: %s", body)
	}
	return *e.Error
}

// TestBadBodies (P09): 400 with the path, never a picture dropped, and nothing encoded.
func TestBadBodies(t *testing.T) {
	f := newFleet(t, nil)
	file := dataURL(picture(t, 30, 30, 50))
	good := `{"type":"image_url","image_url":{"url":"` + file + `"}}`
	msg := func(content string) string { return `{"messages":[{"role":"user","content":` + content + `}]}` }
	check := func(name, body string, status int, param, words string) {
		t.Helper()
		got, _, answer := f.postRaw(t, []byte(body))
		e := parseFailure(t, answer)
		if got != status || e.Code != status || e.Param != param || !strings.Contains(e.Message, words) {
			t.Errorf("%s: got %d %+v, want %d, param %q, %q", name, got, e, status, param, words)
		}
	}
	check("image_url string", msg(`[{"type":"image_url","image_url":"`+file+`"}]`), 400, "messages[0].content[0].image_url", "must be an object")
	check("empty url", msg(`[{"type":"image_url","image_url":{"url":""}}]`), 400, "messages[0].content[0].image_url.url", "empty")
	check("no type", msg(`[{"image_url":{"url":"`+file+`"}}]`), 400, "messages[0].content[0].type", "required")
	check("unknown type", msg(`[{"type":"picture","image_url":{"url":"`+file+`"}}]`), 400, "messages[0].content[0].type", "picture")
	check("item part", msg(`[{"type":"afterimage_item","index":0}]`), 400, "messages[0].content[0].type", "afterimage_item")
	check("item part beside an image", msg(`[`+good+`,{"type":"afterimage_item","index":0}]`), 400, "messages[0].content[1].type", "afterimage_item")
	check("video", msg(`[{"type":"video_url","video_url":{"url":"x"}}]`), 400, "video", "video")
	check("messages string", `{"messages":"hi"}`, 400, "body.messages", "list")
	check("messages number", `{"messages":7}`, 400, "body.messages", "list")
	check("no messages", `{}`, 400, "body.messages", "required")
	check("0 parts", msg(`[]`), 400, "messages[0].content", "")
	check("17 images", msg(`[`+strings.Repeat(good+",", 16)+good+`]`), 400, "image", "At most 16 image(s)")
	check("not JSON", `{"messages":`, 400, "body.12", "JSON decode error")
	check("bad data URL", msg(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,!!"}}]`), 400, "messages[0].content[0]", "messages[0].content[0]")
	check("file URL", msg(`[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]`), 400, "messages[0].content[0]", "URL")
	check("n of 17", `{"n":17,"messages":[{"role":"user","content":[`+good+`]}]}`, 400, "n", "at most 16")
	check("tools", `{"tools":[{}],"messages":[{"role":"user","content":[`+good+`]}]}`, 400, "tools", "not supported")
	check("model", `{"model":"gpt-4","messages":[{"role":"user","content":[`+good+`]}]}`, 404, "model", "Valid aliases: modelled")
	check("uuid alone", msg(`[{"type":"image_url","uuid":"x"}]`), 400, "", "Cache miss for image at index 0 but data is not provided.")
	if got := f.encodes(t); got != 0 {
		t.Errorf("%v encodes for requests that were refused", got)
	}
	for _, role := range []string{"system", "tool"} { // an image may stand in any message
		body := `{"temperature":0,"messages":[{"role":"` + role + `","content":[` + good + `]},{"role":"user","content":"?"}]}`
		status, _, answer := f.postRaw(t, []byte(body))
		content(t, status, answer)
	}
	status, _, answer := f.postRaw(t, []byte(`{"model":"","messages":[{"role":"user","content":"hi"}]}`))
	content(t, status, answer)
}

// TestUUIDIsAHint (K06): bytes decide, whatever name a client gives them.
func TestUUIDIsAHint(t *testing.T) {
	f := newFleet(t, nil)
	a, b := picture(t, 60, 60, 51), picture(t, 120, 90, 52)
	for _, file := range [][]byte{a, b, picture(t, 30, 30, 53)} {
		part := img(file).(map[string]any)
		part["uuid"] = "x"
		status, _, body := f.post(t, nil, user(part, text("what?")))
		if got, want := content(t, status, body), reference(t, nil, turn{file, "what?"}); got != want {
			t.Errorf("%d bytes under the name x: answer %q, want %q", len(file), got, want)
		}
	}
}

// TestRejectedThenServed (C07): a prompt that is too long is refused before any encode, and leaves the
// image as good as new, with the P/D restarted in between too, and after others have pushed it out of every cache.
func TestRejectedThenServed(t *testing.T) {
	const object = 9*cols*4 + 128 // 3 x 3 rows of float32, head and layout
	f := newFleet(t, func(o *options) { o.context, o.residents, o.encoderCache = 256, 3*object, 3*object })
	var files [][]byte
	for i, restart := range []bool{false, true} {
		file := picture(t, 60, 60, uint8(60+i))
		files = append(files, file)
		for range 2 {
			status, _, body := f.post(t, nil, user(img(file), text(strings.Repeat("x", 300))))
			if e := parseFailure(t, body); status != 400 || !strings.Contains(e.Message, "maximum context length is 256") {
				t.Errorf("too long: %d %+v", status, e)
			}
		}
		status, _, body := f.post(t, map[string]any{"max_tokens": 250}, user(img(file), text("x")))
		if e := parseFailure(t, body); status != 400 || e.Param != "max_tokens" {
			t.Errorf("max_tokens: %d %+v", status, e)
		}
		if got := f.encodes(t); got != float64(i) {
			t.Errorf("%v encodes before the first request that can be served", got)
		}
		if restart {
			f.restartPrefill()
		}
		status, _, body = f.post(t, nil, user(img(file), text("x")))
		short := func(o *options) { o.context = 256 }
		if got, want := content(t, status, body), reference(t, short, turn{file, "x"}); got != want {
			t.Errorf("the same image then: %q, want %q", got, want)
		}
	}
	for i := range 12 {
		f.ask(t, "", picture(t, 60, 60, uint8(100+i)))
	}
	if st := f.residents.Stats(); st.Entries > 3 || st.Bytes > 3*object {
		t.Errorf("%d residents with %d bytes, the bound is %d", st.Entries, st.Bytes, 3*object)
	}
	for _, file := range files {
		short := func(o *options) { o.context = 256 }
		status, _, body := f.post(t, nil, user(img(file), text("x")))
		if got, want := content(t, status, body), reference(t, short, turn{file, "x"}); got != want {
			t.Errorf("the same image after others: %q, want %q", got, want)
		}
	}
	// An image alone can be too long as well.
	status, _, body := f.post(t, nil, user(img(picture(t, 600, 600, 63))))
	if e := parseFailure(t, body); status != 400 || !strings.Contains(e.Message, "context") {
		t.Errorf("22 x 22 rows in 256: %d %+v", status, e)
	}
	eventually(t, "all memory is back", f.free)
}

// TestPoolTooSmall: images that can never fit are refused with both numbers, nothing encoded.
func TestPoolTooSmall(t *testing.T) {
	f := newFleet(t, func(o *options) { o.poolBytes = 3000 })
	status, _, body := f.post(t, nil, user(img(picture(t, 140, 140, 64)), img(picture(t, 140, 140, 65))))
	e := parseFailure(t, body)
	if status != 400 || !strings.Contains(e.Message, "3000") || !strings.Contains(e.Message, "need 3") {
		t.Errorf("two objects of 1.7 kB in 3 kB: %d %+v", status, e)
	}
	if got := f.encodes(t); got != 0 {
		t.Errorf("%v encodes", got)
	}
	f.ask(t, "", picture(t, 140, 140, 64))
}

// TestCutFiles (I05): 400 that names the part, nothing kept anywhere, and the whole file then works.
func TestCutFiles(t *testing.T) {
	f := newFleet(t, nil)
	whole := picture(t, 90, 90, 66)
	photo := jpegPicture(t, 90, 90)
	for name, c := range map[string]struct{ bad, good []byte }{
		"PNG":  {whole[:len(whole)/2], whole},
		"JPEG": {photo[:len(photo)-128], photo},
		"HTML": {[]byte("<html><body>not found</body></html>"), picture(t, 30, 31, 67)},
		"text": {[]byte("x"), picture(t, 30, 32, 68)},
	} {
		before := f.encodes(t)
		status, _, body := f.post(t, nil, user(text("look"), img(picture(t, 28, 28, 69)), img(c.bad)))
		e := parseFailure(t, body)
		if status != 400 || e.Param != "messages[0].content[2]" || !strings.Contains(e.Message, e.Param) {
			t.Errorf("%s: %d %+v", name, status, e)
		}
		eventually(t, "the memory is back", f.free)
		for i := range f.encoders {
			f.published(t, i)
			if n := f.encoders[i].cache.Stats().Entries; n > 1 {
				t.Errorf("%s: Encoder %d keeps %d objects, want the good one at most", name, i, n)
			}
		}
		f.ask(t, "", c.good)
		for _, e := range f.encoders {
			e.cache.Remove(f.key(t, c.good))
		}
		if n := f.encodes(t) - before; n > 2 {
			t.Errorf("%s: %v encodes, want one for each good file", name, n)
		}
	}
}

// TestBodyLimit (P07): 413 with the number past the limit, with a length and without.
func TestBodyLimit(t *testing.T) {
	const limit = 1000
	f := newFleet(t, func(o *options) { o.gateway = func(c *gateway.Config) { c.MaxBodyBytes = limit } })
	head, tail := `{"temperature":0,"messages":[{"role":"user","content":"hi"}]`, `}`
	for _, chunked := range []bool{false, true} {
		for n, want := range map[int]int{limit - 1: 200, limit: 200, limit + 1: 413, 40 * limit: 413} {
			body := head + strings.Repeat(" ", n-len(head)-len(tail)) + tail
			var r io.Reader = strings.NewReader(body)
			if chunked {
				r = struct{ io.Reader }{r} // hides its length
			}
			resp := must[*http.Response](t)(f.gateway.Client().Post(f.gateway.URL+"/v1/chat/completions", "application/json", r))
			b := must[[]byte](t)(io.ReadAll(resp.Body))
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%d bytes, chunked %v: %d, want %d: %s", n, chunked, resp.StatusCode, want, b)
			}
			if want == 413 && !strings.Contains(parseFailure(t, string(b)).Message, fmt.Sprint(limit)) {
				t.Errorf("%d bytes: the limit is not named: %s", n, b)
			}
		}
	}
}

// TestImagesInAll (S03): the files of one request are bounded together, fetched ones too.
func TestImagesInAll(t *testing.T) {
	a, b := picture(t, 90, 90, 70), picture(t, 90, 90, 71)
	f := newFleet(t, func(o *options) {
		o.gateway = func(c *gateway.Config) { c.MaxRequestImageBytes = int64(len(a) + len(b) - 1) }
	})
	web := serveFile(t, b)
	for name, second := range map[string]any{"data": img(b), "fetched": imgAt(web.URL)} {
		status, _, body := f.post(t, nil, user(img(a), second))
		e := parseFailure(t, body)
		if status != 400 || !strings.HasPrefix(e.Param, "messages[0].content[") || !strings.Contains(e.Message, "in all") {
			t.Errorf("%s: %d %+v", name, status, e)
		}
		status, _, body = f.post(t, map[string]any{}, user(second, text("?")))
		content(t, status, body)
	}
}

// TestContentEncoding: a compressed body is refused in plain words.
func TestContentEncoding(t *testing.T) {
	f := newFleet(t, nil)
	req := must[*http.Request](t)(http.NewRequest(http.MethodPost, f.gateway.URL+"/v1/chat/completions", bytes.NewReader([]byte{0x1f, 0x8b})))
	req.Header.Set("Content-Encoding", "gzip")
	resp := must[*http.Response](t)(f.gateway.Client().Do(req))
	defer resp.Body.Close()
	b := must[[]byte](t)(io.ReadAll(resp.Body))
	if resp.StatusCode != 415 || !strings.Contains(parseFailure(t, string(b)).Message, "gzip") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
}

// TestRoutes: what is not there, and what is there for another method, in FastAPI's shape.
func TestRoutes(t *testing.T) {
	f := newFleet(t, nil)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v1/chat/completions", `{"detail":"Method Not Allowed"}`, 405},
		{"DELETE", "/v1/models", `{"detail":"Method Not Allowed"}`, 405},
		{"POST", "/v1/traces/x", `{"detail":"Method Not Allowed"}`, 405},
		{"POST", "/v1/embeddings", `{"detail":"Not Found"}`, 404},
		{"GET", "/", `{"detail":"Not Found"}`, 404},
		{"POST", "/v1/prepare", `{"detail":"Not Found"}`, 404},
		{"POST", "/v1/encode", `{"detail":"Not Found"}`, 404},
		{"GET", "/v1/worker", `{"detail":"Not Found"}`, 404},
	} {
		resp := must[*http.Response](t)(f.gateway.Client().Do(must[*http.Request](t)(http.NewRequest(c.method, f.gateway.URL+c.path, nil))))
		b := must[[]byte](t)(io.ReadAll(resp.Body))
		resp.Body.Close()
		if resp.StatusCode != c.status || string(b) != c.body || (c.status == 405) != (resp.Header.Get("Allow") != "") {
			t.Errorf("%s %s: %d %s, Allow %q", c.method, c.path, resp.StatusCode, b, resp.Header.Get("Allow"))
		}
	}
	resp := must[*http.Response](t)(f.gateway.Client().Get(f.gateway.URL + "/v1/traces/nobody"))
	defer resp.Body.Close()
	if b := must[[]byte](t)(io.ReadAll(resp.Body)); resp.StatusCode != 404 || !strings.Contains(string(b), "nobody") {
		t.Errorf("no trace: %d %s", resp.StatusCode, b)
	}
}
