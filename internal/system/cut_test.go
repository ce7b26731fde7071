// SPDX-License-Identifier: Apache-2.0

package system

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/control"
)

// event is one chunk of a stream.
func event(content, finish string) string {
	return `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"modelled","choices":[{"index":0,"delta":{"content":"` +
		content + `"},"logprobs":null,"finish_reason":` + finish + "}]}\n\n"
}

// streams answers with raw events, then ends as end says.
func streams(events string, end http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		readAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		io.WriteString(w, events)
		http.NewResponseController(w).Flush()
		end(w, r)
	}
}

func ends(http.ResponseWriter, *http.Request) {}

// TestCutStreams (P04): an answer that is not whole never looks whole.
func TestCutStreams(t *testing.T) {
	f := newFleet(t, nil)
	two := event("one", "null") + event("two", "null")
	stop, done := event("", `"stop"`), "data: [DONE]\n\n"
	failed := `data: {"error":{"message":"engine lost","type":"InternalServerError","param":null,"code":500}}` + "\n\n"
	for name, c := range map[string]struct {
		events string
		end    http.HandlerFunc
		passed string // what must come through
		words  string // in the error frame; "" for none
	}{
		"whole":                    {two + stop + done, ends, two + stop + done, ""},
		"reset after two chunks":   {two, hangUp, two, "prefill-0"},
		"reset within an event":    {two + stop[:20], hangUp, two, "prefill-0"},
		"EOF after two chunks":     {two, ends, two, "end marker"},
		"EOF within an event":      {two + stop[:20], ends, two, "prefill-0"},
		"EOF after a finish":       {two + stop, ends, two + stop, "end marker"},
		"end marker, no finish":    {two + done, ends, two, "finish reason"},
		"error frame, then marker": {two + failed + done, ends, two + failed + done, "engine lost"},
	} {
		f.prefill.failOn(control.PathChat, streams(c.events, c.end))
		before := f.gateway.count(t, "afterimage_gateway_cut_streams_total", "")
		status, header, body := f.post(t, map[string]any{"stream": true}, user(text("hi")))
		if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/event-stream") || !strings.HasPrefix(body, c.passed) {
			t.Errorf("%s: %d %s", name, status, body)
		}
		cut := 0.0
		if c.words != "" {
			cut = 1
			rest := strings.TrimPrefix(body, strings.TrimSuffix(c.passed, failed+done))
			if !strings.HasPrefix(rest, `data: {"error":{`) || !strings.HasSuffix(rest, done) || !strings.Contains(rest, c.words) || strings.Count(body, done) != 1 {
				t.Errorf("%s: ends in %q, want one error frame with %q and the marker", name, rest, c.words)
			}
		} else if body != c.passed {
			t.Errorf("%s: %q", name, body)
		}
		if got := f.gateway.count(t, "afterimage_gateway_cut_streams_total", "") - before; got != cut {
			t.Errorf("%s: %v cut streams counted, want %v", name, got, cut)
		}
		f.prefill.heal()
		eventually(t, "the P/D is back", func() bool { return f.ready() == nil })
	}
}

// TestDeathBeforeTheFirstEvent: a stream that begins with nothing is repaired like any broken call.
func TestDeathBeforeTheFirstEvent(t *testing.T) {
	f := newFleet(t, nil)
	for name, fault := range map[string]http.HandlerFunc{
		"no event":      streams("", hangUp),
		"half an event": streams(event("x", "null")[:30], hangUp),
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			answers(200, `{"id":`)(w, r)
		},
		"an answer in two": answers(200, `{"id":"x"`),
	} {
		f.prefill.once(control.PathChat, func(w http.ResponseWriter, r *http.Request) bool { fault(w, r); return true })
		status, header, body := f.post(t, map[string]any{"stream": true}, user(text("hi")))
		// The P/D is down until it is probed again; whether that is in time for this request is chance.
		if whole := status == 200 && strings.HasSuffix(body, "data: [DONE]\n\n"); !whole && (status != 503 || header.Get("Retry-After") == "") {
			t.Errorf("%s: %d %s", name, status, body)
		}
		f.prefill.heal()
		eventually(t, "the P/D is back", func() bool { return f.ready() == nil })
	}
}

// TestWorkersWordsPass (P05): status and message of a P/D that refuses, never a 200 before.
func TestWorkersWordsPass(t *testing.T) {
	f := newFleet(t, nil)
	own := func(msg string) string {
		return `{"error":{"message":"` + msg + `","type":"SomeError","param":"p","code":1}}`
	}
	for _, c := range []struct {
		status int
		body   string
		want   int
		words  string
	}{
		{422, own("rows do not fit"), 422, "rows do not fit"},
		{400, own("bad seed"), 400, "bad seed"},
		{429, own("come later"), 429, "come later"},
		{503, own("no memory"), 503, "no memory"},
		{500, own("engine lost"), 500, "engine lost"},
		{500, "<html>oops</html>", 503, "prefill-0 answered 500"},
		{404, "404 page not found", 503, "prefill-0 answered 404"},
		{204, "", 503, "prefill-0 answered 204"},
		{302, "", 503, "prefill-0 answered 302"},
	} {
		for _, stream := range []bool{false, true} {
			for _, parts := range [][]any{{text("hi")}, {text("hi"), img(picture(t, 30, 30, 180))}} {
				f.prefill.failOn(control.PathChat, answers(c.status, c.body))
				status, header, body := f.post(t, map[string]any{"stream": stream}, user(parts...))
				e := parseFailure(t, body)
				if status != c.want || !strings.Contains(e.Message, c.words) || e.Code != c.want || header.Get("Content-Type") != "application/json" {
					t.Errorf("P/D says %d %s, stream %v: the client sees %d %s", c.status, c.body, stream, status, body)
				}
				if retry := header.Get("Retry-After"); (status == 503 || status == 429) != (retry != "") {
					t.Errorf("%d with Retry-After %q", status, retry)
				}
			}
		}
	}
	eventually(t, "the memory is back", f.free)
}

// TestInternalHeadersStayOutside (S06): what a client sends for workers does not reach them.
func TestInternalHeadersStayOutside(t *testing.T) {
	f := newFleet(t, nil)
	inside := make(chan http.Header, 16)
	spy := func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			inside <- r.Header.Clone()
		}
		return false
	}
	for _, n := range []*node{f.prefill, f.encoders[0].node, f.encoders[1].node} {
		n.fail(spy)
	}
	body := `{"temperature":0,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + dataURL(picture(t, 30, 30, 181)) + `"}}]}]}`
	req := must[*http.Request](t)(http.NewRequest(http.MethodPost, f.gateway.URL+control.PathChat, strings.NewReader(body)))
	for name, v := range map[string]string{
		control.HeaderPrepare: "stolen", control.HeaderEncoder: "1", "X-Afterimage-Other": "x", "Authorization": "Bearer secret",
		"Cookie": "a=b", "X-Forwarded-For": "10.0.0.1", control.HeaderRequestID: "mine",
	} {
		req.Header.Set(name, v)
	}
	if status, body := f.do(t, req); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	for _, n := range []*node{f.prefill, f.encoders[0].node, f.encoders[1].node} {
		n.heal()
	}
	close(inside)
	calls := 0
	for h := range inside {
		calls++
		for _, name := range []string{control.HeaderEncoder, "X-Afterimage-Other", "Authorization", "Cookie", "X-Forwarded-For"} {
			if h.Get(name) != "" {
				t.Errorf("a worker got %s: %s", name, h.Get(name))
			}
		}
		if h.Get(control.HeaderPrepare) == "stolen" {
			t.Error("a worker got the client's name of a prepared request")
		}
	}
	if calls < 4 { // geometry, prepare, encode, chat
		t.Errorf("%d calls seen", calls)
	}
}

// TestRequestNames: the client's name comes back when it is harmless, and two requests may share one.
func TestRequestNames(t *testing.T) {
	f := newFleet(t, nil)
	file := picture(t, 30, 30, 182)
	f.ask(t, "", file)
	for name, kept := range map[string]bool{"abc-123": true, "a b": false, strings.Repeat("x", 129): false, "a/b": false, "": false} {
		done := make(chan string)
		for range 3 {
			go func() {
				body := `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + dataURL(file) + `"}}]}]}`
				req, err := http.NewRequest(http.MethodPost, f.gateway.URL+control.PathChat, strings.NewReader(body))
				if err != nil {
					panic(err)
				}
				req.Header.Set(control.HeaderRequestID, name)
				resp, err := f.gateway.Client().Do(req)
				if err != nil {
					done <- err.Error()
					return
				}
				defer resp.Body.Close()
				readAll(resp.Body)
				done <- resp.Status + " " + resp.Header.Get(control.HeaderRequestID)
			}()
		}
		for range 3 {
			got := <-done
			if !strings.HasPrefix(got, "200 OK ") || (got == "200 OK "+name) != kept {
				t.Errorf("%q: %q, kept %v", name, got, kept)
			}
		}
	}
}
