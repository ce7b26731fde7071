// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"afterimage/internal/engine"
	"afterimage/internal/openai"
)

// segment is a run of the prompt: text tokens, or the place of one embedding.
type segment struct {
	tokens []int32
	item   int // media position, counted in prompt order; -1 for text
}

// prompt is a conversation as the model will see it.
type prompt struct {
	segments []segment
	tokens   int    // text tokens
	media    int    // media positions
	echo     string // what an answer begins with
	form     string // the grammar of an answer; "" for none
}

// roles are those of OpenAI's API. A template would write any other as it stands.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// checkRoles refuses roles that no client of the API means.
func checkRoles(chat *openai.Chat) error {
	for i, m := range chat.Messages {
		if !slices.Contains(roles, m.Role) {
			return openai.BadRequest(fmt.Sprintf("messages[%d].role", i), "messages[%d].role %.40q is not known: use %s.", i, m.Role, strings.Join(roles, ", "))
		}
	}
	return nil
}

// buildPrompt renders the conversation with the model's template and cuts it at the embeddings.
//
// The template sees a marker where an embedding stands. Markers carry a random word per request, so
// that no client can write one: a placeholder quoted in a message stays text. Text whose words would
// turn into control tokens is kept apart in the same way and tokenised as plain text.
func buildPrompt(t engine.Text, chat *openai.Chat) (*prompt, error) {
	var nonce [8]byte
	rand.Read(nonce[:])
	m := &marks{word: "[[" + hex.EncodeToString(nonce[:]) + ":"}
	msgs := make([]engine.Message, 0, len(chat.Messages))
	for _, msg := range chat.Messages {
		if control, err := hasControl(t, msg.Role); err != nil || control {
			return nil, cmp.Or(err, fmt.Errorf("role %q holds control tokens", msg.Role))
		}
		content, err := m.content(t, msg)
		if err != nil {
			return nil, err
		}
		msgs = append(msgs, engine.Message{Role: msg.Role, Content: content})
	}
	text, err := t.Prompt(msgs)
	if err != nil {
		return nil, err
	}
	return m.cut(t, text)
}

// marks holds what the markers of one request stand for.
type marks struct {
	word  string
	items []segment
}

func (m *marks) add(s segment) string {
	m.items = append(m.items, s)
	return m.word + strconv.Itoa(len(m.items)-1) + "]]"
}

// content joins the parts of one message: neighbouring texts by a line feed, as vLLM does, and
// embeddings where they stand.
func (m *marks) content(t engine.Text, msg openai.Message) (string, error) {
	var b strings.Builder
	afterText := false
	for _, p := range msg.Parts {
		if p.IsItem {
			b.WriteString(m.add(segment{item: p.Item}))
			afterText = false
			continue
		}
		text, err := m.text(t, p.Text)
		if err != nil {
			return "", err
		}
		if afterText {
			b.WriteByte('\n')
		}
		b.WriteString(text)
		afterText = true
	}
	return b.String(), nil
}

// text returns s, or a marker for its plain tokens when s would be read as control tokens.
func (m *marks) text(t engine.Text, s string) (string, error) {
	control, err := hasControl(t, s)
	if err != nil || !control {
		return s, err
	}
	plain, err := t.Tokenize(s, false)
	if err != nil {
		return "", err
	}
	return m.add(segment{tokens: plain, item: -1}), nil
}

// hasControl says whether s reads differently once control tokens are recognised in it.
func hasControl(t engine.Text, s string) (bool, error) {
	plain, err := t.Tokenize(s, false)
	if err != nil {
		return false, err
	}
	special, err := t.Tokenize(s, true)
	return !slices.Equal(plain, special), err
}

// cut splits rendered text at the markers and tokenises what lies between.
func (m *marks) cut(t engine.Text, text string) (*prompt, error) {
	p := &prompt{}
	p.text(t.Begin())
	seen := 0
	for text != "" {
		before, rest, found := strings.Cut(text, m.word)
		toks, err := t.Tokenize(before, true)
		if err != nil {
			return nil, err
		}
		p.text(toks)
		if !found {
			break
		}
		num, rest, _ := strings.Cut(rest, "]]")
		i, err := strconv.Atoi(num)
		if err != nil || i != seen {
			return nil, fmt.Errorf("the chat template moved or repeated a message part (part %d, found %q)", seen, num)
		}
		seen++
		if s := m.items[i]; s.item < 0 {
			p.text(s.tokens)
		} else {
			p.segments = append(p.segments, s)
			p.media++
		}
		text = rest
	}
	if seen != len(m.items) {
		return nil, fmt.Errorf("the chat template dropped %d of %d message parts", len(m.items)-seen, len(m.items))
	}
	return p, nil
}

// text appends tokens, joining them to a text segment before.
func (p *prompt) text(toks []int32) {
	if len(toks) == 0 {
		return
	}
	p.tokens += len(toks)
	if n := len(p.segments); n > 0 && p.segments[n-1].item < 0 {
		p.segments[n-1].tokens = append(p.segments[n-1].tokens, toks...)
		return
	}
	p.segments = append(p.segments, segment{tokens: slices.Clone(toks), item: -1})
}

// words returns the text tokens of the whole prompt.
func (p *prompt) words() []int32 {
	out := make([]int32, 0, p.tokens)
	for _, s := range p.segments {
		out = append(out, s.tokens...)
	}
	return out
}
