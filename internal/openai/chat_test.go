// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseChat(t *testing.T) {
	body := `{"model":"m","messages":[
		{"role":"system","content":"be \u00e4 b\\"},
		{"role":"user","name":"eve","content":[{"type":"text","text":"what "},{"type":"afterimage_item","index":0},"plain",{"index":1,"type":"afterimage_item"}]},
		{"role":"assistant","content":null,"tool_calls":[]}],
		"max_tokens":8,"max_completion_tokens":null,"temperature":0,"top_p":0.5,"seed":-3,"stop":["a","\n"],
		"stream":true,"stream_options":{"include_usage":true},"n":1,"user":"u",
		"tools":null,"tool_choice":"none","logit_bias":{},"response_format":{"type":"text"},"logprobs":false,"frequency_penalty":0,
		"presence_penalty":0.0,"top_k":-1,"modalities":[ "text" ],"metadata":{"a":"b"},"whatever":[1,2]}`
	got, err := ParseChat([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	seed := int64(-3)
	want := &Chat{
		Options: Options{
			Model: "m", User: "u", N: 1, MaxTokens: 8, Stop: []string{"a", "\n"}, Stream: true, IncludeUsage: true,
			Sampling: Sampling{TopP: 0.5, Seed: &seed, RepetitionPenalty: 1, LogitBias: map[int32]float32{}},
		},
		Messages: []Message{
			{Role: "system", Plain: true, Parts: []Part{{Text: `be ä b\`}}},
			{Role: "user", Name: "eve", Parts: []Part{{Text: "what "}, {IsItem: true, Item: 0}, {Text: "plain"}, {IsItem: true, Item: 1}}},
			{Role: "assistant"},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := got.Items(); n != 2 {
		t.Errorf("got %d items, want 2", n)
	}
}

func TestParseChatDefaults(t *testing.T) {
	f := func(fields string) {
		t.Helper()
		got, err := ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}]` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		want := &Chat{Options: Options{N: 1, Sampling: Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1}}, Messages: []Message{{Role: "user", Plain: true, Parts: []Part{{Text: "x"}}}}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", fields, d)
		}
	}
	f("")
	f(`,"model":null,"max_tokens":null,"temperature":null,"top_p":null,"seed":null,"stop":null,"stream":null,"stream_options":null,"n":null,"user":null`)
	f(`,"tools":null,"response_format":null,"logprobs":null,"prompt_logprobs":null,"logit_bias":null,"top_k":null,"functions":null,"audio":null`)
	f(`,"Temperature":0.1,"MESSAGES":[]`) // keys are compared exactly
	f(`,"temperature":"1.0","n":1.0`)
	f(`,"stream_options":{}`)
}

func TestParseChatLimits(t *testing.T) {
	f := func(field string, want int) {
		t.Helper()
		c, err := ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}],` + field + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if c.MaxTokens != want {
			t.Errorf("%s: got %d, want %d", field, c.MaxTokens, want)
		}
	}
	f(`"max_tokens":7`, 7)
	f(`"max_tokens":"7"`, 7)
	f(`"max_tokens":7.0`, 7)
	f(`"max_completion_tokens":5,"max_tokens":7`, 5)
	f(`"max_completion_tokens":9000000000`, 1<<31-1)
}

func TestParseChatRefuses(t *testing.T) {
	f := func(field, param, message string) {
		t.Helper()
		_, err := ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}],` + field + `}`))
		if err == nil {
			t.Errorf("accepted: %s", field)
			return
		}
		e := AsError(err)
		if e.Status != 400 || e.Param != param || !strings.Contains(e.Message, message) {
			t.Errorf("%s:\n got %d %q %q\nwant 400 %q %q", field, e.Status, e.Param, e.Message, param, message)
		}
	}
	f(`"temperature":-0.5`, "temperature", "temperature must be non-negative, got -0.5. (parameter=temperature, value=-0.5)")
	f(`"temperature":[1]`, "body.temperature", "'input': '<list of 1 items>'")
	f(`"temperature":true`, "body.temperature", "float_type")
	f(`"temperature":1e999`, "body.temperature", "finite_number")
	f(`"temperature":"0x1p4"`, "body.temperature", "float_parsing")
	f(`"temperature":"nan"`, "body.temperature", "finite_number")
	f(`"top_p":0`, "top_p", "top_p must be in (0, 1], got 0.0.")
	f(`"top_p":1.01`, "top_p", "got 1.01.")
	f(`"max_tokens":0`, "max_tokens", "max_tokens must be at least 1, got 0.")
	f(`"max_tokens":1.5`, "body.max_tokens", "int_from_float")
	f(`"max_tokens":"many"`, "body.max_tokens", "int_parsing")
	f(`"max_tokens":{}`, "body.max_tokens", "int_type")
	f(`"max_completion_tokens":-1`, "max_completion_tokens", "max_completion_tokens must be at least 1")
	f(`"seed":99999999999999999999`, "body.seed", "exceeded maximum size")
	f(`"seed":1e300`, "body.seed", "exceeded maximum size")
	f(`"stop":7`, "body.stop", "string_type")
	f(`"stop":["a",7]`, "body.stop", "string_type")
	f(`"stop":["a",""]`, "stop", "empty string")
	f(`"stop":"`+strings.Repeat("a", MaxStopBytes+1)+`"`, "stop", "1025 bytes; at most 1024")
	f(`"stop":["a"`+strings.Repeat(`,"a"`, MaxStops)+`]`, "stop", "At most 64 stop strings")
	f(`"stream":1`, "body.stream", "bool_parsing")
	f(`"stream_options":{"include_usage":false}`, "stream_options", "only be defined when `stream=True`")
	f(`"stream":true,"stream_options":[]`, "body.stream_options", "valid dictionary")
	f(`"stream":true,"stream_options":{"include_usage":"x"}`, "body.stream_options.include_usage", "valid boolean")
	f(`"stream":true,"stream_options":{"continuous_usage_stats":true}`, "stream_options.continuous_usage_stats", "not supported")
	f(`"n":17`, "n", "n must be at most 16, got 17.")
	f(`"n":-1`, "n", "n must be at least 1")
	f(`"seed":1,"seed":2`, "seed", "twice")
	for name, value := range map[string]string{
		"tools": `[{"type":"function"}]`, "tool_choice": `"required"`, "functions": `[{}]`, "min_tokens": `1`, "prompt_logprobs": `0`, "modalities": `["text","audio"]`,
		"chat_template": `"x"`, "mm_processor_kwargs": `{"a":1}`,
	} {
		f(`"`+name+`":`+value, name, "`"+name+"` with the value ")
	}
	f(`"top_k":"x"`, "body.top_k", "int_parsing")
	f(`"top_k":-2`, "top_k", "at least 1, got -2")
	f(`"min_p":1.5`, "min_p", "in [0, 1], got 1.5")
	f(`"repetition_penalty":0`, "repetition_penalty", "greater than zero, got 0.0")
	f(`"presence_penalty":-2.1`, "presence_penalty", "in [-2, 2]")
	f(`"frequency_penalty":"x"`, "body.frequency_penalty", "float_parsing")
	f(`"logit_bias":[1]`, "body.logit_bias", "valid dictionary")
	f(`"logit_bias":{"x":1}`, "logit_bias", "\"x\"")
	f(`"logit_bias":{"-1":1}`, "logit_bias", "\"-1\"")
	f(`"logit_bias":{"99999999999":1}`, "logit_bias", "no token id")
	f(`"logit_bias":{"5":"much"}`, "logit_bias", "token 5 must be a number")
	f(`"ignore_eos":1`, "body.ignore_eos", "bool_parsing")
	f(`"top_logprobs":3`, "top_logprobs", "`logprobs` must be set")
	f(`"logprobs":true,"top_logprobs":21`, "top_logprobs", "in [0, 20], got 21")
	f(`"response_format":"json"`, "body.response_format", "valid dictionary")
	f(`"response_format":{}`, "response_format.type", "got None")
	f(`"response_format":{"type":"xml"}`, "response_format.type", "got 'xml'")
	f(`"response_format":{"type":"json_schema"}`, "response_format.json_schema", "an object with a schema")
	f(`"response_format":{"type":"json_schema","json_schema":{}}`, "response_format.json_schema.schema", "required")
	f(`"response_format":{"type":"json_schema","json_schema":{"schema":{"a":"`+strings.Repeat("a", MaxSchemaBytes)+`"}}}`, "response_format.json_schema.schema", "at most 65536")
	// What no answer can hold is not taken for U+FFFD, which one can.
	f(`"response_format":{"type":"json_schema","json_schema":{"schema":{"enum":["\ud800"]}}}`, "response_format.json_schema.schema", `holds \ud800, half of a character`)
	f(`"response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a\udfff":{}}}}}`, "response_format.json_schema.schema", `\udfff`)
	f(`"stop":"\ud800"`, "stop", `\ud800`)
	f(`"stop":["a","b\ud83d\u0041"]`, "stop", `\ud83d`)
	f(`"top_k":40,"tools":[1],"zzz":1`, "tools", "'<list of 1 items>'")
}

func TestParseSampling(t *testing.T) {
	got, err := ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}],"n":3,"top_k":40,"min_p":0.1,"repetition_penalty":1.2,
		"presence_penalty":-2,"frequency_penalty":"0.5","logit_bias":{"5":-1000,"7":2.5},"ignore_eos":true,"logprobs":true,"top_logprobs":20,
		"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Sampling{
		Temperature: 1, TopP: 1, TopK: 40, MinP: 0.1, RepetitionPenalty: 1.2, PresencePenalty: -2, FrequencyPenalty: 0.5,
		LogitBias: map[int32]float32{5: -100, 7: 2.5}, IgnoreEOS: true, Logprobs: true, TopLogprobs: 20,
		Format: Format{JSON: true, Schema: []byte(`{"type":"object"}`)},
	}
	if d := cmp.Diff(want, got.Sampling); d != "" || got.N != 3 {
		t.Errorf("n %d, %s", got.N, d)
	}
	if err := got.CheckVocab(8); err != nil {
		t.Error(err)
	}
	if e := AsError(got.CheckVocab(7)); e.Status != 400 || e.Param != "logit_bias" {
		t.Errorf("a token outside of the vocabulary: %v", e)
	}
}

func TestParseChatRefusesParts(t *testing.T) {
	f := func(body, param, message string) {
		t.Helper()
		_, err := ParseChat([]byte(body))
		if e := AsError(err); err == nil || e.Status != 400 || e.Param != param || !strings.Contains(e.Message, message) {
			t.Errorf("%s: got %v", body, err)
		}
	}
	f(user("["+imageA+"]"), "messages[0].content[0]", "send images to the gateway")
	f(user(`[{"type":"afterimage_item","index":1}]`), "messages[0].content[0].index", "must be 0")
	f(user(`[{"type":"afterimage_item","index":0},{"type":"afterimage_item","index":0}]`), "messages[0].content[1].index", "must be 1")
	f(user(`[{"type":"afterimage_item"}]`), "messages[0].content[0].index", "must be 0")
	f(`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"x"}]}]}`, "messages[0].tool_calls", "not supported")
}

func TestPythonNotation(t *testing.T) {
	f := func(raw, want string) {
		t.Helper()
		if got := pyValue([]byte(raw)); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
	f(`-1`, `-1`)
	f(`1e5`, `100000.0`)
	f(`0.00001`, `1e-05`)
	f(`1e16`, `1e+16`)
	f(`"it's"`, `"it's"`)
	f(`"\"'\n\u0001\\ü"`, `'"\'\n\x01\\ü'`)
	f(`{"a":1,"b":[1,2]}`, `'<dict of 2 items>'`)
	f(`true`, `True`)
	f(`null`, `None`)
	f(`"`+strings.Repeat("ü", 101)+`"`, `'`+strings.Repeat("ü", 100)+`...'`)
}
