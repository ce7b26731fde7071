// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"maps"
	"math"
)

const (
	// MaxPrompts bounds the prompts of one request of the completions API.
	MaxPrompts = 64
	// MaxAnswers bounds the answers to them, n for each.
	MaxAnswers = 64
	// textTokens is max_tokens of the completions API where the client sets none.
	textTokens = 16
)

// Text is a request of the completions API as P/D serves it. All strings are copies.
type Text struct {
	Options
	Prompts []Prompt
	Echo    bool // an answer begins with its prompt
}

// Prompt is text, or the tokens of it.
type Prompt struct {
	Text   string
	Tokens []int32 // not nil: these are the prompt
}

// ParseText reads the body of a completions request. As with chats, fields that would change the answer and are
// not served are refused by name, and unknown ones ignored. Every error is an *Error with status 400.
func ParseText(body []byte) (*Text, error) {
	top, err := topFields(body)
	if err != nil {
		return nil, err
	}
	t := &Text{}
	if t.Prompts, err = top.prompts(); err != nil {
		return nil, err
	}
	if err := t.Sampling.read(top); err != nil {
		return nil, err
	}
	if t.Logprobs, t.TopLogprobs, err = top.textLogprobs(); err != nil {
		return nil, err
	}
	if t.MaxTokens, err = top.maxTokens("max_tokens"); err != nil {
		return nil, err
	}
	if t.MaxTokens == 0 {
		t.MaxTokens = textTokens
	}
	if err := t.Options.read(top); err != nil {
		return nil, err
	}
	if t.Echo, err = top.boolean("echo"); err != nil {
		return nil, err
	}
	switch answers := t.N * len(t.Prompts); {
	case answers > MaxAnswers:
		return nil, badValue("n", pyInt(int64(t.N)), "%d prompts with n = %d are %d answers; at most %d may be asked for in one request.", len(t.Prompts), t.N, answers, MaxAnswers)
	case t.Echo && t.Logprobs:
		return nil, badParam("logprobs", "`logprobs` is not supported together with `echo`: the log probabilities of prompts are not computed.")
	}
	return t, top.refuseUnsupported(unsupportedText)
}

// unsupportedText is unsupported for the completions API.
var unsupportedText = func() map[string]neutral {
	m := maps.Clone(unsupported)
	delete(m, "echo")
	m["add_special_tokens"] = is("true")
	m["suffix"] = empty
	return m
}()

// topFields returns the members of a body that must be one object.
func topFields(body []byte) (fields, error) {
	s := scanner{b: body}
	if s.peek() != '{' {
		if _, err := s.value(); err != nil {
			return nil, err
		}
		return nil, BadRequest("", "The body must be a JSON object.")
	}
	top := fields{}
	_, err := s.object(func(key []byte) error {
		name := string(key)
		if _, twice := top[name]; twice {
			return badParam(Shorten(name), "The key `%s` stands twice in one object.", Shorten(name))
		}
		if len(top) >= maxFields {
			return badParam("body", "The body has more than %d fields.", maxFields)
		}
		raw, err := s.value()
		top[name] = raw
		return err
	})
	if err == nil {
		err = s.end()
	}
	return top, err
}

// prompts reads prompt: a string, token ids, or a list of either.
func (f fields) prompts() ([]Prompt, error) {
	raw := f.raw("prompt")
	if raw == nil {
		return nil, errField("missing", "prompt", "Field required", "None")
	}
	if raw[0] != '[' {
		p, err := promptAt("prompt", raw)
		return []Prompt{p}, err
	}
	return promptList(raw)
}

// promptList reads a list: of token ids, which are one prompt, or of prompts.
func promptList(raw []byte) ([]Prompt, error) {
	var out []Prompt
	var ids []int32
	s := scanner{b: raw}
	_, err := s.array(func(i int) error {
		v, err := s.value()
		if err != nil {
			return err
		}
		path := indexed("prompt", i)
		switch _, kind := number(v); {
		case kind == '0' && len(out) == 0:
			id, err := tokenAt(path, v)
			ids = append(ids, id)
			return err
		case kind == '0', ids != nil:
			return badParam(path, "prompt must be a string, a list of token ids, or a list of either; it is a mixture.")
		case len(out) == MaxPrompts:
			return badParam("prompt", "At most %d prompts may be sent in one request.", MaxPrompts)
		}
		p, err := promptAt(path, v)
		out = append(out, p)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case ids != nil:
		return []Prompt{{Tokens: ids}}, nil
	case out == nil:
		return nil, badParam("prompt", "prompt must not be empty.")
	}
	return out, nil
}

// promptAt reads one prompt.
func promptAt(path string, raw []byte) (Prompt, error) {
	if text, ok := decodeString(raw); ok {
		if text == "" {
			return Prompt{}, badParam(path, "%s must not be empty.", path)
		}
		return Prompt{Text: text}, nil
	}
	if raw[0] != '[' {
		return Prompt{}, badParam(path, "%s must be a string or a list of token ids, got %s.", path, jsonKind(raw))
	}
	p := Prompt{Tokens: []int32{}}
	s := scanner{b: raw}
	n, err := s.array(func(i int) error {
		v, err := s.value()
		if err != nil {
			return err
		}
		id, err := tokenAt(indexed(path, i), v)
		p.Tokens = append(p.Tokens, id)
		return err
	})
	if err == nil && n == 0 {
		err = badParam(path, "%s must not be empty.", path)
	}
	return p, err
}

// tokenAt reads a token id.
func tokenAt(path string, raw []byte) (int32, error) {
	id, ok, err := fields{"id": raw}.integer("id")
	if _, kind := number(raw); err != nil || !ok || kind != '0' || id < 0 || id > math.MaxInt32 {
		return 0, badParam(path, "%s must be a token id, got %s.", path, pyValue(raw))
	}
	return int32(id), nil
}

// textLogprobs reads logprobs, which is a number in the completions API.
func (f fields) textLogprobs() (want bool, top int, err error) {
	n, given, err := f.integer("logprobs")
	if err == nil && (n < 0 || n > MaxTopLogprobs) {
		err = badValue("logprobs", pyInt(n), "logprobs must be in [0, %d], got %d.", MaxTopLogprobs, n)
	}
	return given, int(n), err
}

// CheckTokens reports a prompt with a token that a vocabulary of n does not have.
func (t *Text) CheckTokens(n int) error {
	for i, p := range t.Prompts {
		for _, id := range p.Tokens {
			if int(id) >= n {
				return badParam(indexed("prompt", i), "prompt %d has token %d, and the vocabulary has %d.", i, id, n)
			}
		}
	}
	return nil
}
