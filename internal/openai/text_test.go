// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseText(t *testing.T) {
	f := func(prompt string, want ...Prompt) {
		t.Helper()
		got, err := ParseText([]byte(`{"model":"m","prompt":` + prompt + `,"whatever":[1],"messages":null}`))
		if err != nil {
			t.Fatal(err)
		}
		full := &Text{Options: Options{Model: "m", N: 1, MaxTokens: 16, Sampling: Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1}}, Prompts: want}
		if d := cmp.Diff(full, got); d != "" {
			t.Errorf("%s: %s", prompt, d)
		}
	}
	f(`"a\u00e4b"`, Prompt{Text: "aäb"})
	f(`["a"]`, Prompt{Text: "a"})
	f(`["a","b"]`, Prompt{Text: "a"}, Prompt{Text: "b"})
	f(`[1,2,3]`, Prompt{Tokens: []int32{1, 2, 3}})
	f(`[[1,2],[3]]`, Prompt{Tokens: []int32{1, 2}}, Prompt{Tokens: []int32{3}})
	f(`["a",[3]]`, Prompt{Text: "a"}, Prompt{Tokens: []int32{3}})

	got, err := ParseText([]byte(`{"prompt":"x","n":3,"logprobs":2,"max_tokens":5,"stream":true,"stream_options":{"include_usage":true},"stop":"b","user":"u","seed":1,"suffix":"","best_of":1}`))
	if err != nil || got.N != 3 || !got.Logprobs || got.TopLogprobs != 2 || got.MaxTokens != 5 || !got.Stream || !got.IncludeUsage || got.User != "u" || *got.Seed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestParseTextRefuses: what is not served is refused by the name of the field at fault.
func TestParseTextRefuses(t *testing.T) {
	f := func(body, param string) {
		t.Helper()
		_, err := ParseText([]byte(body))
		// vLLM has the path from the body for faults of form.
		if e := AsError(err); err == nil || e.Status != 400 || strings.TrimPrefix(e.Param, "body.") != param || param != "" && !strings.Contains(e.Message, param) {
			t.Errorf("%s: %v, param %q, want %q", body, err, AsError(err).Param, param)
		}
	}
	f(`{}`, "prompt")
	f(`[]`, "")
	f(`{"prompt":"x"`, "13")
	f(`{"prompt":"x"} x`, "15")
	f(`{"prompt":"x","prompt":"y"}`, "prompt")
	for prompt, param := range map[string]string{
		`null`: "prompt", `""`: "prompt", `[]`: "prompt", `5`: "prompt", `{}`: "prompt", `[[]]`: "prompt[0]", `["a",1]`: "prompt[1]", `[1,"a"]`: "prompt[1]",
		`[1,[2]]`: "prompt[1]", `[1.5]`: "prompt[0]", `[-1]`: "prompt[0]", `[99999999999]`: "prompt[0]", `[["1"]]`: "prompt[0][0]", `[null]`: "prompt[0]",
		`[""]`: "prompt[0]", `[true]`: "prompt[0]",
	} {
		f(`{"prompt":`+prompt+`}`, param)
	}
	f(`{"prompt":[`+strings.Repeat(`"a",`, MaxPrompts)+`"a"]}`, "prompt")
	for fields, param := range map[string]string{
		`"n":17`: "n", `"logprobs":-1`: "logprobs", `"logprobs":21`: "logprobs", `"logprobs":true`: "logprobs", `"echo":true,"logprobs":1`: "logprobs",
		`"echo":1`: "echo", `"suffix":"x"`: "suffix", `"best_of":2`: "best_of", `"max_tokens":0`: "max_tokens", `"use_beam_search":true`: "use_beam_search",
		`"prompt_logprobs":1`: "prompt_logprobs", `"add_special_tokens":false`: "add_special_tokens", `"temperature":-1`: "temperature",
	} {
		f(`{"prompt":"x",`+fields+`}`, param)
	}
	f(`{"prompt":["a","b","c","d","e"],"n":16}`, "n")
	text, err := ParseText([]byte(`{"prompt":[[1],[7]]}`))
	if err != nil || AsError(text.CheckTokens(7)).Param != "prompt[1]" || text.CheckTokens(8) != nil {
		t.Errorf("%v, a token outside of the vocabulary: %v", err, text.CheckTokens(7))
	}
}

// textLogprobs are of two tokens; of the likeliest in the first one's place, two read alike.
var textLogprobs = []TokenLogprob{
	{Logprob: Logprob{Token: []byte("é"), Logprob: -0.5}, Top: []Logprob{{Token: []byte("é"), Logprob: -0.5}, {Token: []byte{0xff}, Logprob: -2}, {Token: []byte{0xfe}, Logprob: -3}}},
	{Logprob: Logprob{Token: []byte("ab"), Logprob: -1e9}},
}

// TestTextAnswer: the shape of a whole answer, which is strict JSON, with offsets in characters.
func TestTextAnswer(t *testing.T) {
	c := Completion{
		Head:    Head{ID: TextID("r"), Created: 5, Model: "m", Text: true},
		Choices: []Choice{{Content: "éab", Logprobs: textLogprobs, End: End{Reason: FinishLength}}, {Content: "\"", End: End{Reason: FinishStop, Stop: "x"}}},
		Usage:   Usage{PromptTokens: 3, CompletionTokens: 2, CachedTokens: 1},
	}
	want := `{"id":"cmpl-r","object":"text_completion","created":5,"model":"m","choices":[` +
		`{"index":0,"text":"éab","logprobs":{"text_offset":[0,1],"token_logprobs":[-0.5,-9999],"tokens":["é","ab"],` +
		`"top_logprobs":[{"é":-0.5,"` + "\uFFFD" + `":-2},{"ab":-9999}]},"finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null},` +
		`{"index":1,"text":"\"","logprobs":null,"finish_reason":"stop","stop_reason":"x","token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null}],` +
		`"service_tier":null,"system_fingerprint":null,"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}},"kv_transfer_params":null}`
	if got := string(c.AppendJSON(nil)); got != want || !json.Valid([]byte(got)) {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// TestTextStream: no chunk names a role, and offsets go on from chunk to chunk.
func TestTextStream(t *testing.T) {
	w := httptest.NewRecorder()
	c := NewChunkWriter(w, Head{ID: "cmpl-r", Created: 5, Model: "m", Text: true}, true, 0)
	for _, err := range []error{
		c.Start(2), c.Text(0, "éab", textLogprobs), c.Text(0, "c", textLogprobs[1:]), c.End(1, "x", nil, End{Reason: FinishStop}),
		c.Finish(0, "", nil, End{Reason: FinishLength}, Usage{PromptTokens: 3, CompletionTokens: 2}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	events := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
	const head = `data: {"id":"cmpl-r","object":"text_completion","created":5,"model":"m","choices":[`
	wants := []string{
		head + `{"index":0,"text":"éab","logprobs":{"text_offset":[0,1],`, head + `{"index":0,"text":"c","logprobs":{"text_offset":[3],`,
		head + `{"index":1,"text":"x","logprobs":null,"finish_reason":"stop"`, head + `{"index":0,"text":"","logprobs":null,"finish_reason":"length"`,
		head + `],"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}`, "data: [DONE]",
	}
	if len(events) != len(wants) {
		t.Fatalf("%d events, want %d:\n%s", len(events), len(wants), w.Body)
	}
	for i, want := range wants {
		if !strings.HasPrefix(events[i], want) || i < 5 && !json.Valid([]byte(events[i][6:])) {
			t.Errorf("event %d:\n got %s\nwant %s…", i, events[i], want)
		}
	}
}
