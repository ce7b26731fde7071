// SPDX-License-Identifier: Apache-2.0

package openai

// shown are the options whose values are numbers or switches and hold nothing of what a client says.
var shown = []string{
	"stream", "n", "best_of", "max_tokens", "max_completion_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed",
	"presence_penalty", "frequency_penalty", "repetition_penalty", "logprobs", "top_logprobs", "prompt_logprobs", "ignore_eos", "echo", "priority",
}

// shownOptions returns names and values of the options that may be shown in a log, in turns.
func shownOptions(raw func(name string) []byte) (out []any) {
	for _, name := range shown {
		switch v := raw(name); {
		case len(v) == 0 || len(v) > 32:
		case v[0] == 't', v[0] == 'f', v[0] == '-', '0' <= v[0] && v[0] <= '9':
			out = append(out, name, string(v))
		}
	}
	if format, err := members(or(raw("response_format"), "{}")); err == nil {
		if kind, ok := decodeString(format["type"]); ok && (kind == "text" || kind == "json_object" || kind == "json_schema") {
			out = append(out, "response_format", kind)
		}
	}
	return out
}

// Shown returns names and values of the options that may be shown in a log, in turns: no text of the client's.
func (r *Request) Shown() []any { return shownOptions(func(name string) []byte { return r.top[name] }) }

// Shown is that of a Request.
func (e *Envelope) Shown() []any { return shownOptions(e.Raw) }
