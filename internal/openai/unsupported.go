// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"errors"
	"slices"
)

// neutral says whether a field's value asks for nothing beyond what is done anyway.
type neutral func(raw []byte) bool

// never accepts null only.
func never([]byte) bool { return false }

// empty accepts {}, [] and "".
func empty(raw []byte) bool {
	switch raw[0] {
	case '{', '[':
		return countItems(raw) == pySize("dict", 0) || countItems(raw) == pySize("list", 0)
	}
	return string(raw) == `""`
}

// is accepts the given JSON words, numbers by value.
func is(words ...string) neutral {
	return func(raw []byte) bool {
		v := string(raw)
		if f, ok, err := (fields{"v": raw}).float("v"); err == nil && ok {
			v = PyFloat(f)
		}
		return slices.Contains(words, v)
	}
}

// unsupported lists the fields of OpenAI's and vLLM's chat API that would change the answer and are
// not served, with the values that change nothing. Fields about logging, billing and scheduling
// (metadata, store, service_tier, priority, request_id, ...) are ignored.
var unsupported = map[string]neutral{
	// Tools, formats and other modalities.
	"tools":               empty,
	"tool_choice":         is(`"none"`, `"auto"`),
	"functions":           empty,
	"function_call":       is(`"none"`, `"auto"`),
	"structured_outputs":  never,
	"guided_json":         never,
	"guided_regex":        never,
	"guided_choice":       never,
	"guided_grammar":      never,
	"modalities":          onlyText,
	"audio":               never,
	"prediction":          never,
	"web_search_options":  never,
	"documents":           empty,
	"mm_processor_kwargs": empty,
	"media_io_kwargs":     empty,
	"prompt_embeds":       never,

	// The prompt's form.
	"chat_template":              never,
	"chat_template_kwargs":       empty,
	"add_generation_prompt":      is("true"),
	"continue_final_message":     is("false"),
	"add_special_tokens":         is("false"),
	"echo":                       is("false"),
	"truncate_prompt_tokens":     never,
	"skip_special_tokens":        is("true"),
	"include_stop_str_in_output": is("false"),

	// Sampling.
	"length_penalty":    is("1.0"),
	"min_tokens":        is("0.0"),
	"best_of":           is("1.0"),
	"use_beam_search":   is("false"),
	"stop_token_ids":    empty,
	"bad_words":         empty,
	"allowed_token_ids": never,
	"logits_processors": empty,

	// The answer's form.
	"prompt_logprobs":            never,
	"return_token_ids":           is("false"),
	"return_tokens_as_token_ids": is("false"),
}

// onlyText accepts ["text"].
func onlyText(raw []byte) bool {
	s := scanner{b: raw}
	if raw[0] != '[' {
		return false
	}
	_, err := s.array(func(int) error {
		v, err := s.value()
		if err == nil && string(v) != `"text"` {
			err = errNotText
		}
		return err
	})
	return err == nil
}

// errNotText ends the walk through a list of modalities.
var errNotText = errors.New("not text")

// refuseUnsupported names the first field, in alphabetical order, that asks for something not served.
func (f fields) refuseUnsupported(list map[string]neutral) error {
	worst := ""
	for name := range f {
		ok, listed := list[name]
		raw := f.raw(name)
		if listed && raw != nil && !ok(raw) && (worst == "" || name < worst) {
			worst = name
		}
	}
	if worst != "" {
		return badParam(worst, "`%s` with the value %s is not supported by this server: leave it out or set it to null.",
			worst, pyValue(f[worst]))
	}
	if options := f.raw("stream_options"); options != nil {
		o, _ := members(options)
		if usage, err := o.boolean("continuous_usage_stats"); err != nil || usage {
			return badParam("stream_options.continuous_usage_stats", "`continuous_usage_stats` is not supported by this server.")
		}
	}
	return nil
}

// checkExtras refuses messages of a conversation with tools, whose calls the prompt would lack.
func (m *rawMessage) checkExtras() error {
	for _, name := range []string{"tool_calls", "function_call"} {
		if raw := m.extras.raw(name); raw != nil && !empty(raw) {
			return badParam(join(m.path(), name), "%s.%s is not supported by this server.", m.path(), name)
		}
	}
	return nil
}
