// SPDX-License-Identifier: Apache-2.0

package openai

import "testing"

func TestReadUsage(t *testing.T) {
	f := func(b string, want Usage, found bool) {
		t.Helper()
		if got, ok := ReadUsage([]byte(b)); got != want || ok != found {
			t.Errorf("%s: %+v, %v; want %+v, %v", b, got, ok, want, found)
		}
	}
	all := Usage{PromptTokens: 5, CompletionTokens: 2, CachedTokens: 3}
	f(`{"usage":{"prompt_tokens":5,"total_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}`, all, true)
	f(`{"usage" : {"prompt_tokens_details":null,"prompt_tokens":5}, "x":1}`, Usage{PromptTokens: 5}, true)
	f(string((&Completion{Usage: all}).AppendJSON(nil)), all, true)
	f("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\n", Usage{PromptTokens: 5, CompletionTokens: 2}, true)
	f(`{"usage":null}`, Usage{}, false)
	f(`{"usage":{"completion_tokens":2}}`, Usage{}, false)
	f(`{"text":"\"usage\":{\"prompt_tokens\":5}"}`, Usage{}, false) // quoted by a model
	f(`{"tokens":["usage"],"top":{"usage":-1}}`, Usage{}, false)
	f(`{"usage":{"prompt_tokens":5`, Usage{}, false)
	f(``, Usage{}, false)
}
