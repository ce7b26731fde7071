// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"math"
	"strconv"
)

// Limits of what one request may ask for.
const (
	MaxChoices     = 16
	MaxTopLogprobs = 20
	MaxLogitBias   = 1024
	MaxSchemaBytes = 64 << 10
)

// Sampling decides which tokens are chosen. The names and defaults are vLLM's.
type Sampling struct {
	Temperature float64
	TopP        float64 // in (0, 1]
	TopK        int     // 0 takes all
	MinP        float64 // in [0, 1]
	Seed        *int64  // nil if the client set none

	RepetitionPenalty float64 // above 0; 1 is none. Of tokens in prompt and answer
	PresencePenalty   float64 // in [-2, 2], of tokens in the answer
	FrequencyPenalty  float64 // likewise, per time
	LogitBias         map[int32]float32

	IgnoreEOS bool
	// Logprobs asks for the log probability of each token, and of TopLogprobs likeliest ones in its place.
	Logprobs    bool
	TopLogprobs int
	Format      Format
}

// Format is the form that an answer must have.
type Format struct {
	JSON   bool   // any JSON object
	Schema []byte // with JSON: its JSON schema, if the client gave one
}

// read reads what decides which tokens are chosen. Log probabilities are asked for in a way of each API.
func (s *Sampling) read(f fields) (err error) {
	if err = s.readNumbers(f); err != nil {
		return err
	}
	if s.TopK, err = f.topK(); err != nil {
		return err
	}
	if seed, ok, err := f.integer("seed"); err != nil {
		return err
	} else if ok {
		s.Seed = &seed
	}
	if s.LogitBias, err = f.logitBias(); err != nil {
		return err
	}
	if s.IgnoreEOS, err = f.boolean("ignore_eos"); err != nil {
		return err
	}
	s.Format, err = f.format()
	return err
}

// readNumbers reads what is held to a range. The first that is wrong is told.
func (s *Sampling) readNumbers(f fields) (err error) {
	number := func(name string, usual float64, ok func(float64) bool, want string) float64 {
		v, given, e := f.float(name)
		switch {
		case err != nil:
		case e != nil:
			err = e
		case !given:
			return usual
		case !ok(v):
			err = badValue(name, PyFloat(v), "%s must be %s, got %s.", name, want, PyFloat(v))
		}
		return v
	}
	within := func(low, high float64) func(float64) bool {
		return func(v float64) bool { return low <= v && v <= high }
	}
	s.Temperature = number("temperature", 1, within(0, math.MaxFloat64), "non-negative")
	s.TopP = number("top_p", 1, func(v float64) bool { return 0 < v && v <= 1 }, "in (0, 1]")
	s.MinP = number("min_p", 0, within(0, 1), "in [0, 1]")
	s.RepetitionPenalty = number("repetition_penalty", 1, func(v float64) bool { return v > 0 }, "greater than zero")
	s.PresencePenalty = number("presence_penalty", 0, within(-2, 2), "in [-2, 2]")
	s.FrequencyPenalty = number("frequency_penalty", 0, within(-2, 2), "in [-2, 2]")
	return err
}

// topK reads top_k; 0 and -1 take all.
func (f fields) topK() (int, error) {
	k, _, err := f.integer("top_k")
	if err == nil && k < -1 {
		err = badValue("top_k", pyInt(k), "top_k must be 0 (disable), or at least 1, got %d.", k)
	}
	return int(min(max(k, 0), math.MaxInt32)), err
}

// logitBias reads a bias per token id.
func (f fields) logitBias() (map[int32]float32, error) {
	raw := f.raw("logit_bias")
	if raw == nil {
		return nil, nil
	}
	if raw[0] != '{' {
		return nil, errField("dict_type", "logit_bias", "Input should be a valid dictionary", pyValue(raw))
	}
	biases, err := members(raw)
	if err != nil {
		return nil, err
	}
	if len(biases) > MaxLogitBias {
		return nil, badParam("logit_bias", "logit_bias has %d entries; at most %d are allowed.", len(biases), MaxLogitBias)
	}
	out := make(map[int32]float32, len(biases))
	for name := range biases {
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || id < 0 {
			return nil, badParam("logit_bias", "logit_bias has the key %q, which is no token id.", Shorten(name))
		}
		v, ok, err := biases.float(name)
		if err != nil || !ok {
			return nil, badParam("logit_bias", "logit_bias of token %d must be a number.", id)
		}
		out[int32(id)] = float32(min(max(v, -100), 100))
	}
	return out, nil
}

// logprobs reads logprobs and top_logprobs.
func (f fields) logprobs() (want bool, top int, err error) {
	if want, err = f.boolean("logprobs"); err != nil {
		return false, 0, err
	}
	n, given, err := f.integer("top_logprobs")
	switch {
	case err != nil:
		return false, 0, err
	case n < 0 || n > MaxTopLogprobs:
		return false, 0, badValue("top_logprobs", pyInt(n), "top_logprobs must be in [0, %d], got %d.", MaxTopLogprobs, n)
	case given && n > 0 && !want:
		return false, 0, badParam("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.")
	}
	return want, int(n), nil
}

// format reads response_format.
func (f fields) format() (Format, error) {
	const name = "response_format"
	raw := f.raw(name)
	if raw == nil {
		return Format{}, nil
	}
	if raw[0] != '{' {
		return Format{}, errField("model_attributes_type", name, "Input should be a valid dictionary or object to extract fields from", pyValue(raw))
	}
	format, err := members(raw)
	if err != nil {
		return Format{}, err
	}
	switch kind, _ := decodeString(format["type"]); kind {
	case "text":
		return Format{}, nil
	case "json_object":
		return Format{JSON: true}, nil
	case "json_schema":
		return format.schema()
	}
	return Format{}, badParam(name+".type", "response_format.type must be text, json_object or json_schema, got %s.", pyValue(or(format["type"], "null")))
}

// schema reads the schema of a response_format.
func (f fields) schema() (Format, error) {
	const name = "response_format.json_schema"
	raw := f.raw("json_schema")
	if raw == nil || raw[0] != '{' {
		return Format{}, badParam(name, "%s must be an object with a schema.", name)
	}
	outer, err := members(raw)
	if err != nil {
		return Format{}, err
	}
	schema := outer.raw("schema")
	switch {
	case schema == nil:
		return Format{}, badParam(name+".schema", "%s.schema is required.", name)
	case len(schema) > MaxSchemaBytes:
		return Format{}, badParam(name+".schema", "%s.schema has %d bytes; at most %d are allowed.", name, len(schema), MaxSchemaBytes)
	}
	if err := whole(name+".schema", schema); err != nil {
		return Format{}, err
	}
	return Format{JSON: true, Schema: append([]byte(nil), schema...)}, nil
}

func or(raw []byte, usual string) []byte {
	if len(raw) == 0 {
		return []byte(usual)
	}
	return raw
}

// CheckVocab reports a bias of a token that a vocabulary of n does not have.
func (s *Sampling) CheckVocab(n int) error {
	for id := range s.LogitBias {
		if int(id) >= n {
			return badParam("logit_bias", "logit_bias names token %d, and the vocabulary has %d.", id, n)
		}
	}
	return nil
}
