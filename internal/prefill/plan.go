// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"slices"

	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// plan renders the prompt of a chat and measures it in tokens, images included. uses says which of
// items stands at each media position. It refuses what this worker cannot serve.
func (p *Prefill) plan(chat *openai.Chat, items []control.PrepareItem, uses []int) (*prompt, int, error) {
	if len(uses) != chat.Items() {
		return nil, 0, openai.BadRequest("uses", "%d uses for %d media positions", len(uses), chat.Items())
	}
	used := make([]bool, len(items))
	for _, u := range uses {
		if u < 0 || u >= len(items) {
			return nil, 0, openai.BadRequest("uses", "a media position uses item %d of %d", u, len(items))
		}
		used[u] = true
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, 0, openai.BadRequest("uses", "item %d stands nowhere in the conversation", i)
	}
	if err := p.fitsAtAll(chat); err != nil {
		return nil, 0, err
	}
	if err := checkRoles(chat); err != nil {
		return nil, 0, err
	}
	form, err := p.checkSampling(&chat.Options)
	if err != nil {
		return nil, 0, err
	}
	pr, err := buildPrompt(p.cfg.Engine, chat)
	if err != nil {
		return nil, 0, openai.BadRequest("messages", "%v", err)
	}
	pr.form = form
	n := pr.tokens
	for _, u := range uses {
		n += items[u].Tokens
	}
	return pr, n, p.fits(n, &chat.Options)
}

// fitsAtAll refuses, before it is tokenised, text that no tokens of this model are long enough for: a
// body of megabytes would keep a core busy for many seconds, in native code that no cancellation ends.
func (p *Prefill) fitsAtAll(chat *openai.Chat) error {
	n := len(chat.Messages) // each takes a token at least
	if piece := p.spec.PieceBytes; piece > 0 {
		bytes := 0
		for _, m := range chat.Messages {
			for _, part := range m.Parts {
				bytes += len(part.Text) + 1 // parts are joined by a line feed
			}
			bytes += len(m.Role) - 1
		}
		n = max(n, bytes/piece)
	}
	if n >= p.spec.Context {
		return openai.PromptTooLong(p.spec.Context, n)
	}
	return nil
}

// fits checks the prompt's length and max_tokens against the context.
func (p *Prefill) fits(n int, opts *openai.Options) error {
	limit := p.spec.Context
	switch {
	case n >= limit:
		return openai.PromptTooLong(limit, n)
	case opts.MaxTokens > limit:
		return openai.MaxTokensTooLarge(opts.MaxTokens, limit)
	case n+opts.MaxTokens > limit:
		return openai.BadRequest("max_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens, for a total of %d tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=max_tokens, value=%d)",
			limit, opts.MaxTokens, n, n+opts.MaxTokens, opts.MaxTokens)
	}
	return nil
}
