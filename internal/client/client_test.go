// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	one   = `data: {"choices":[{"delta":{"content":"one "}}]}` + "\n\n"
	two   = `data: {"choices":[{"delta":{"content":"two"}}]}` + "\n\n"
	stop  = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usage = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}` + "\n\n"
	done  = "data: [DONE]\n\n"
)

// ask has a server answer a question with status and body, and returns what the client made of it.
func ask(t *testing.T, status int, body string, end func()) (Answer, string, error) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces/secret" {
			fmt.Fprint(w, `{"prefill":"p","attempts":2,"items":[{"index":0,"source":"store","encoder":"e"}],"stages":[{"name":"read","ms":1}]}`)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Request-Id", "r")
		w.Header().Set("X-Afterimage-Trace", "secret")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
		_ = http.NewResponseController(w).Flush()
		end()
	}))
	defer s.Close()
	c := &Client{Base: s.URL, HTTP: s.Client()}
	var pieces strings.Builder
	a, err := c.Ask(t.Context(), Question{Text: "?"}, func(p string) { pieces.WriteString(p) })
	return a, pieces.String(), err
}

func TestAsk(t *testing.T) {
	a, pieces, err := ask(t, 200, ": comment\n\n"+one+two+stop+usage+done, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if a.Text != "one two" || pieces != a.Text || a.FinishReason != "stop" || a.Usage != (Usage{3, 2, 5}) || a.Request != "r" {
		t.Errorf("got %+v, pieces %q", a, pieces)
	}
	if a.Prefill != "p" || a.Attempts != 2 || len(a.Items) != 1 || a.Items[0].Source != "store" || a.TTFTMS <= 0 || a.TotalMS < a.TTFTMS {
		t.Errorf("trace %+v", a)
	}
}

// TestCutAnswers: what had come is returned, with an error; nothing that is cut looks whole.
func TestCutAnswers(t *testing.T) {
	f := func(name, body, text, words string, end func()) {
		t.Helper()
		a, pieces, err := ask(t, 200, body, end)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: error %v, want %q", name, err, words)
		}
		if a.Text != text || pieces != text {
			t.Errorf("%s: text %q, pieces %q, want %q", name, a.Text, pieces, text)
		}
	}
	nothing := func() {}
	hangUp := func() { panic(http.ErrAbortHandler) }
	f("EOF", one+two, "one two", "cut off", nothing)
	f("reset", one, "one ", "cut off", hangUp)
	f("within an event", one+two[:20], "one ", "cut off", nothing)
	f("empty", "", "", "cut off", nothing)
	f("no finish reason", one+done, "one ", "finish reason", nothing)
	f("error frame", one+`data: {"error":{"message":"engine lost"}}`+"\n\n"+done, "one ", "engine lost", nothing)
	f("not JSON", one+"data: {\n\n", "one ", "not JSON", nothing)
	f("no stream", `{"choices":[]}`, "", "cut off", nothing)
}

func TestRefusals(t *testing.T) {
	f := func(status int, body string, want Error) {
		t.Helper()
		_, _, err := ask(t, status, body, func() {})
		var e *Error
		if !errors.As(err, &e) || *e != want {
			t.Errorf("got %v, want %+v", err, want)
		}
	}
	f(400, `{"error":{"message":"bad","param":"messages[0]"}}`, Error{400, "bad", "messages[0]"})
	f(503, `{"error":{"message":"later","param":null}}`, Error{503, "later", ""})
	f(502, "<html>\n", Error{502, "<html>", ""})
	f(500, "", Error{500, "Internal Server Error", ""})
}

func TestQuestionNeedsItsPictures(t *testing.T) {
	c := &Client{Base: "http://127.0.0.1:0", HTTP: http.DefaultClient}
	if _, err := c.Ask(t.Context(), Question{Images: [][]byte{{1}, nil}}, nil); err == nil || !strings.Contains(err.Error(), "picture 1 is empty") {
		t.Errorf("got %v", err)
	}
}
