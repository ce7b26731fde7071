// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"afterimage/internal/model"
)

// shaped are requests whose answers samplers, grammars, stop strings and counters shape: all that begins with the first
// token, which a decode worker picks, and goes on from there.
func shaped(t *testing.T) (bodies []map[string]any) {
	t.Helper()
	person := map[string]any{"type": "object", "additionalProperties": false, "required": []string{"name", "age", "tags"}, "properties": map[string]any{
		"name": map[string]any{"type": "string", "maxLength": 8}, "age": map[string]any{"type": "integer"},
		"tags": map[string]any{"type": "array", "minItems": 1, "maxItems": 2, "items": map[string]any{"enum": []string{"a", "b"}}},
	}}
	schema := map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "person", "strict": true, "schema": person}}
	for _, fields := range []map[string]any{
		{"response_format": map[string]any{"type": "json_object"}},
		{"response_format": schema, "max_tokens": 200},
		{"response_format": schema, "max_tokens": 200, "n": 2, "seed": 7, "temperature": 1.5},
		{"response_format": schema, "max_tokens": 200, "stream": true},
		{"logprobs": true, "top_logprobs": 5},
		{"n": 3, "seed": 11, "temperature": 1.2, "logprobs": true, "top_logprobs": 2},
		{"response_format": schema, "max_tokens": 200, "stop": []string{"zq", `"age"`}},
		{"response_format": schema, "max_tokens": 200, "stop": `"age"`, "stream": true, "stream_options": map[string]any{"include_usage": true}},
		{"temperature": 0.9, "seed": 5, "top_p": 0.8, "top_k": 20, "min_p": 0.01, "repetition_penalty": 1.2, "frequency_penalty": 0.5, "logit_bias": map[string]any{"65": 3}},
		{"ignore_eos": true, "max_tokens": 30},
		{"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "f"}}}}, // the same refusal
	} {
		body := map[string]any{"temperature": 0, "max_tokens": 24, "messages": []any{user(text("say it"), img(picture(t, 64, 48, 3)))}}
		for k, v := range fields {
			body[k] = v
		}
		bodies = append(bodies, body)
	}
	return bodies
}

// vary is what differs between two equal answers: names, times, and what of the prompt was there before.
var vary = regexp.MustCompile(`"(id|created|system_fingerprint|prompt_tokens_details)":("[^"]*"|\d+|null|\{[^}]*\})`)

// TestThreeWaysShapeAnswers: a real model under grammars, stop strings, several choices, logprobs, seeds and
// penalties says through a decode worker what it says without one, to the byte, streamed and not.
func TestThreeWaysShapeAnswers(t *testing.T) {
	u := startUp(t, append(pair(t, model.MLP), "--decodes", "1")...)
	answers := func() (out []string) {
		for _, body := range shaped(t) {
			status, got := u.post(t, body)
			out = append(out, fmt.Sprint(status, " ", vary.ReplaceAllString(string(got), `"$1":0`)))
		}
		return out
	}
	through := answers()
	eventually(t, "the decode worker has given all answers but the refused one", func() bool {
		return u.count(t, "decode-0", "afterimage_decode_requests_total", "") == float64(len(through)-1)
	})
	u.hold(t, "decode-0")
	for i, alone := range answers() {
		if alone != through[i] {
			t.Errorf("request %d: through a decode worker\n%s\nby the P/D alone\n%s", i, through[i], alone)
		}
	}
	var a struct {
		Choices []struct{ Message struct{ Content string } }
	}
	_, body, _ := strings.Cut(through[1], " ")
	if err := json.Unmarshal([]byte(body), &a); err != nil || len(a.Choices) != 1 {
		t.Fatalf("%v in %s", err, body)
	}
	if !strings.Contains(through[6], `"stop_reason":"\"age\""`) {
		t.Errorf("no stop string was met: %s", through[6])
	}
	var person struct{ Tags []string }
	if err := json.Unmarshal([]byte(a.Choices[0].Message.Content), &person); err != nil || len(person.Tags) == 0 {
		t.Errorf("%v: the answer does not follow its schema: %s", err, a.Choices[0].Message.Content)
	}
}
