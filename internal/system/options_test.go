// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// chatAnswer is a completion as far as these tests look at it.
type chatAnswer struct {
	Choices []struct {
		Index        int
		FinishReason string `json:"finish_reason"`
		Message      struct{ Content string }
		Logprobs     *struct {
			Content []struct {
				Token       string
				Logprob     float64
				Bytes       []int
				TopLogprobs []struct {
					Token   string
					Logprob float64
				} `json:"top_logprobs"`
			}
		}
	}
	Usage struct {
		PromptTokens        int `json:"prompt_tokens"`
		CompletionTokens    int `json:"completion_tokens"`
		PromptTokensDetails struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// with posts a question about a picture with further fields, and returns the answer.
func (f *fleet) with(t *testing.T, file []byte, fields string) chatAnswer {
	t.Helper()
	messages := must[[]byte](t)(json.Marshal([]any{user(img(file), text("What is it?"))}))
	got := f.send(t, http.MethodPost, "/v1/chat/completions", nil, fmt.Appendf(nil, `{"messages":%s,%s}`, messages, fields))
	var a chatAnswer
	if err := json.Unmarshal([]byte(got.body), &a); err != nil || got.status != 200 {
		t.Fatalf("%s: status %d: %s", fields, got.status, got.body)
	}
	return a
}

// TestSamplingOptions sends every option through the whole fleet.
func TestSamplingOptions(t *testing.T) { samplingOptions(t, newFleet(t, nil)) }

func samplingOptions(t *testing.T, f *fleet) {
	file := picture(t, 60, 60, 9)
	plain := f.with(t, file, `"temperature":0`)
	if c := plain.Choices[0]; len(c.Message.Content) != 12 || c.FinishReason != "stop" || c.Logprobs != nil {
		t.Errorf("plain: %+v", plain)
	}
	// The first answer is there before its prompt is, to be reused.
	eventually(t, "the prompt is reused", func() bool {
		again := f.with(t, file, `"temperature":0`)
		if again.Choices[0].Message.Content != plain.Choices[0].Message.Content {
			t.Errorf("the same again: %+v", again)
		}
		return again.Usage.PromptTokensDetails.CachedTokens >= plain.Usage.PromptTokens-2
	})
	several := f.with(t, file, `"temperature":0,"n":3,"max_tokens":5,"logprobs":true,"top_logprobs":2`)
	for i, c := range several.Choices {
		if c.Index != i || c.FinishReason != "length" || c.Message.Content != plain.Choices[0].Message.Content[:5] {
			t.Errorf("choice %d: %+v", i, c)
		}
		for k, l := range c.Logprobs.Content {
			if l.Token != c.Message.Content[k:k+1] || l.Logprob > 0 || l.Logprob < -0.1 || len(l.TopLogprobs) != 2 || l.TopLogprobs[0].Token != l.Token || l.Bytes[0] != int(l.Token[0]) {
				t.Errorf("choice %d, token %d: %+v", i, k, l)
			}
		}
	}
	if len(several.Choices) != 3 || several.Usage.CompletionTokens != 15 {
		t.Errorf("three choices: %+v", several)
	}
	// Hot enough, the modelled engine's clear winner is one of many; equal seeds agree, choices do not.
	hot := f.with(t, file, `"temperature":50,"seed":5,"n":2,"max_tokens":12,"ignore_eos":true`)
	same := f.with(t, file, `"temperature":50,"seed":5,"n":2,"max_tokens":12,"ignore_eos":true`)
	for i := range 2 {
		if hot.Choices[i].Message.Content != same.Choices[i].Message.Content {
			t.Errorf("seed 5 gives %q and %q", hot.Choices[i].Message.Content, same.Choices[i].Message.Content)
		}
	}
	if hot.Choices[0].Message.Content == hot.Choices[1].Message.Content {
		t.Errorf("two choices of one seed are both %q", hot.Choices[0].Message.Content)
	}
	content := func(fields string) string { return f.with(t, file, fields).Choices[0].Message.Content }
	if got := content(`"temperature":0,"logit_bias":{"97":100},"max_tokens":20`); got != strings.Repeat("a", 20) {
		t.Errorf("a bias for a: %q", got)
	}
	past := f.with(t, file, `"temperature":0,"ignore_eos":true,"max_tokens":30`)
	if got := past.Choices[0].Message.Content; past.Usage.CompletionTokens != 30 || len(got) < 12 || got[:12] != plain.Choices[0].Message.Content {
		t.Errorf("past the end: %d tokens, %q", past.Usage.CompletionTokens, got)
	}
	if got := content(`"temperature":1,"top_k":1,"min_p":0.5,"repetition_penalty":1.0,"presence_penalty":0,"frequency_penalty":0`); got != plain.Choices[0].Message.Content {
		t.Errorf("one to choose from: %q", got)
	}
	if got := content(`"temperature":0,"presence_penalty":2,"frequency_penalty":2,"logit_bias":{"97":21,"98":20},"max_tokens":2`); got != "ab" {
		t.Errorf("a penalty: %q", got)
	}
}

// TestSeveralStreamedChoices reads three choices from one stream.
func TestSeveralStreamedChoices(t *testing.T) { severalStreamedChoices(t, newFleet(t, nil)) }

func severalStreamedChoices(t *testing.T, f *fleet) {
	got := f.send(t, http.MethodPost, "/v1/chat/completions", nil,
		[]byte(`{"messages":[{"role":"user","content":"hi"}],"temperature":0,"n":3,"max_tokens":4,"stream":true,"stream_options":{"include_usage":true}}`))
	texts, ends := make([]string, 3), 0
	for event := range strings.SplitSeq(got.body, "\n\n") {
		data := strings.TrimPrefix(event, "data: ")
		if data == "" || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Index        int
				Delta        struct{ Content string }
				FinishReason *string `json:"finish_reason"`
			}
			Usage *struct {
				CompletionTokens int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		for _, c := range chunk.Choices {
			texts[c.Index] += c.Delta.Content
			if c.FinishReason != nil {
				ends++
			}
		}
		if chunk.Usage != nil && chunk.Usage.CompletionTokens != 12 {
			t.Errorf("usage %+v", chunk.Usage)
		}
	}
	if ends != 3 || len(texts[0]) != 4 || texts[1] != texts[0] || texts[2] != texts[0] || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("%d ends of %q in %s", ends, texts, got.body)
	}
}

// TestOptionsOfAModel: what only the P/D can judge is refused before any picture is encoded.
func TestOptionsOfAModel(t *testing.T) {
	f := newFleet(t, nil)
	file := must[[]byte](t)(json.Marshal([]any{user(img(picture(t, 60, 60, 77)), text("?"))}))
	before := f.encodes(t)
	for fields, words := range map[string]string{
		`"logit_bias":{"258":1}`:                   "names token 258, and the vocabulary has 258",
		`"response_format":{"type":"json_object"}`: "not supported by this engine",
		`"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"integer","minimum":1}}}`:                                                                       "#/minimum",
		`"response_format":{"type":"json_schema","json_schema":{"schema":{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"},"minItems":1}]}}}`: "#/anyOf/1",
	} {
		got := f.send(t, http.MethodPost, "/v1/chat/completions", nil, fmt.Appendf(nil, `{"messages":%s,%s}`, file, fields))
		if got.status != 400 || !strings.Contains(got.body, words) {
			t.Errorf("%s: status %d: %s", fields, got.status, got.body)
		}
	}
	if n := f.encodes(t) - before; n != 0 {
		t.Errorf("%v encodes", n)
	}
}
