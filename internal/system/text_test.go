// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"afterimage/internal/control"
)

// textAnswer is an answer of the completions API as far as these tests look at it.
type textAnswer struct {
	ID, Object string
	Choices    []struct {
		Index        int
		Text         string
		FinishReason string `json:"finish_reason"`
		Logprobs     *struct {
			TextOffset    []int                `json:"text_offset"`
			TokenLogprobs []float64            `json:"token_logprobs"`
			Tokens        []string             `json:"tokens"`
			TopLogprobs   []map[string]float64 `json:"top_logprobs"`
		}
	}
	Usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	}
}

// complete posts a body to the completions API.
func (f *fleet) complete(t *testing.T, body string) textAnswer {
	t.Helper()
	got := f.send(t, http.MethodPost, control.PathText, nil, []byte(body))
	var a textAnswer
	if err := json.Unmarshal([]byte(got.body), &a); err != nil || got.status != 200 {
		t.Fatalf("%s: status %d: %s", body, got.status, got.body)
	}
	return a
}

// texts are the texts of an answer, in the order of their indexes.
func (a textAnswer) texts() string {
	var out []string
	for i, c := range a.Choices {
		if c.Index != i {
			return fmt.Sprintf("choice %d has index %d", i, c.Index)
		}
		out = append(out, c.Text)
	}
	return strings.Join(out, "|")
}

// TestCompletions: prompts of every form, several at once, with n, echo and log probabilities. The tokens of the
// modelled engine are bytes.
func TestCompletions(t *testing.T) {
	f := newFleet(t, func(o *options) { o.text = newParrot })
	say := func(fields, want string) textAnswer {
		t.Helper()
		a := f.complete(t, `{"model":"modelled","temperature":0,"user":"u","unknown":[1],`+fields+`}`)
		if got := a.texts(); got != want || a.Object != "text_completion" || !strings.HasPrefix(a.ID, "cmpl-") {
			t.Errorf("%s: %q, %+v; want %q", fields, got, a, want)
		}
		return a
	}
	ids := func(s string) string {
		return strings.ReplaceAll(fmt.Sprint([]byte(s)), " ", ",")
	}
	a := say(`"prompt":"repeat after me: 漢字 🎨 é"`, "漢字 🎨 é")
	if a.Usage.PromptTokens != len("repeat after me: 漢字 🎨 é") || a.Usage.CompletionTokens != len("漢字 🎨 é")+1 || a.Choices[0].FinishReason != "stop" {
		t.Errorf("usage %+v, choices %+v", a.Usage, a.Choices)
	}
	a = say(`"prompt":"repeat after me: 0123456789abcdefgh"`, "0123456789abcdef")
	if a.Choices[0].FinishReason != "length" {
		t.Errorf("without max_tokens: %+v", a.Choices)
	}
	say(`"prompt":["repeat after me: a","repeat after me: b"],"n":2`, "a|a|b|b")
	say(`"prompt":`+ids("repeat after me: abc"), "abc")
	say(`"prompt":[`+ids("repeat after me: x")+`,`+ids("repeat after me: y")+`],"max_tokens":5`, "x|y")
	say(`"prompt":["repeat after me: a",`+ids("repeat after me: b")+`],"echo":true`, "repeat after me: aa|repeat after me: bb")
	say(`"prompt":"repeat after me: one two","stop":" two"`, "one")
	a = say(`"prompt":"repeat after me: ab","logprobs":1`, "ab")
	if l := a.Choices[0].Logprobs; l == nil || fmt.Sprint(l.TextOffset, l.Tokens) != "[0 1 2] [a b ]" || len(l.TokenLogprobs) != 3 || l.TopLogprobs[1]["b"] != l.TokenLogprobs[1] {
		t.Errorf("log probabilities %+v", l)
	}
	one := f.complete(t, `{"prompt":"roll dice","seed":7,"max_tokens":30}`).texts()
	if two := f.complete(t, `{"prompt":["roll dice","roll dice"],"seed":7,"max_tokens":30}`).texts(); two != one+"|"+one {
		t.Errorf("equal seeds give %q and %q", one, two)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if got := f.complete(t, fmt.Sprintf(`{"prompt":["repeat after me: %d","repeat after me: x"],"n":3}`, i)).texts(); got != fmt.Sprintf("%d|%[1]d|%[1]d|x|x|x", i) {
				t.Errorf("request %d: %s", i, got)
			}
		})
	}
	wg.Wait()
}

// TestCompletionsStream: events of all choices, each flushed, with the prompt first where it is echoed.
func TestCompletionsStream(t *testing.T) {
	f := newFleet(t, func(o *options) { o.text = newParrot })
	got := f.send(t, http.MethodPost, control.PathText, map[string]string{control.HeaderRequestID: "mine"},
		[]byte(`{"prompt":["repeat after me: 漢","repeat after me: é"],"n":2,"echo":true,"stream":true,"stream_options":{"include_usage":true}}`))
	if got.status != 200 || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Fatalf("%d %s", got.status, got.body)
	}
	texts, ends, usage := make([]string, 4), 0, 0
	for _, e := range events(t, got.body) {
		if e == "[DONE]" {
			continue
		}
		var a textAnswer
		if err := json.Unmarshal([]byte(e), &a); err != nil || a.ID != "cmpl-mine" {
			t.Errorf("%s: %v", e, err)
		}
		for _, c := range a.Choices {
			texts[c.Index] += c.Text
			if c.FinishReason != "" {
				ends++
			}
		}
		if a.Usage.CompletionTokens > 0 {
			usage++
		}
	}
	if got := strings.Join(texts, "|"); got != "repeat after me: 漢漢|repeat after me: 漢漢|repeat after me: éé|repeat after me: éé" || ends != 4 || usage != 1 {
		t.Errorf("%s, %d ends, %d usages", got, ends, usage)
	}
}

// TestCompletionsRefuse (P12): bodies of other APIs and what is not served, each by name.
func TestCompletionsRefuse(t *testing.T) {
	f := newFleet(t, nil)
	for path, cases := range map[string]map[string]string{
		control.PathText: {
			`{"messages":[{"role":"user","content":"x"}]}`: "prompt",
			`{"input":"x"}`: "prompt",
			`{"prompt":"x","logprobs":1,"echo":true}`:              "logprobs",
			`{"prompt":"x","suffix":"y"}`:                          "suffix",
			`{"prompt":"x","tools":[{"type":"function"}]}`:         "tools",
			`{"prompt":[1,"x"]}`:                                   "prompt",
			`{"prompt":[70000]}`:                                   "vocabulary",
			`{"prompt":"x","model":5}`:                             "model",
			`{"prompt":"` + strings.Repeat("x", 5000) + `"}`:       "maximum context length",
			`{"prompt":["x","` + strings.Repeat("x", 5000) + `"]}`: "prompt[1]",
			`{"prompt":"x"`:                                        "JSON",
			`"x"`:                                                  "object",
			``:                                                     "JSON",
		},
		control.PathChat: {
			`{"model":"modelled","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}]}`:                                          "messages",
			`{"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}}]}]}`:                     "video",
			`{"messages":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}]}`:                           "input_image",
			`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]}`:                                   "tools",
			`{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"not":{}}}}}`: "response_format",
		},
	} {
		for body, word := range cases {
			got := f.send(t, http.MethodPost, path, nil, []byte(body))
			if fail := parseFailure(t, got.body); got.status != 400 || !strings.Contains(fail.Message, word) {
				t.Errorf("%s %.100s: %d %+v; want %q", path, body, got.status, fail, word)
			}
		}
	}
	if got := f.send(t, http.MethodPost, control.PathText, nil, []byte(`{"prompt":"x","model":"nope"}`)); got.status != 404 {
		t.Errorf("an unknown model: %d %s", got.status, got.body)
	}
	if got := f.send(t, http.MethodPost, "/v1/responses", nil, []byte(`{"input":"x"}`)); got.status != 404 {
		t.Errorf("an API that is not served: %d %s", got.status, got.body)
	}
	f.expect(t, "afterwards", 200, "choices", picture(t, 60, 60, 1))
}
