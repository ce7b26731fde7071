// SPDX-License-Identifier: Apache-2.0

package openai

import "bytes"

var usageKey = []byte(`"usage"`)

// ReadUsage finds the token counts of an answer in one piece, or of an event's data; ok is false if it has none.
// b is checked JSON.
func ReadUsage(b []byte) (u Usage, ok bool) {
	at := bytes.LastIndex(b, usageKey)
	if at < 0 {
		return u, false
	}
	value, colon := afterColon(b[at+len(usageKey):])
	if !colon || len(value) == 0 || value[0] != '{' {
		return u, false
	}
	s := scanner{b: value}
	raw, err := s.value()
	if err != nil {
		return u, false
	}
	counts, err := members(raw)
	if err != nil {
		return u, false
	}
	prompt, ok, err := counts.integer("prompt_tokens")
	if err != nil || !ok {
		return u, false
	}
	answer, _, _ := counts.integer("completion_tokens") // of answers without any it is absent
	u = Usage{PromptTokens: int(prompt), CompletionTokens: int(answer)}
	if details, err := members(or(counts.raw("prompt_tokens_details"), "{}")); err == nil {
		cached, _, _ := details.integer("cached_tokens")
		u.CachedTokens = int(cached)
	}
	return u, true
}
