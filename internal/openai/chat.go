// SPDX-License-Identifier: Apache-2.0

package openai

// Limits of stop strings. OpenAI takes four, vLLM any number; text is held back for as long as it may
// be the start of one, hence the length.
const (
	MaxStops     = 64
	MaxStopBytes = 1024
)

// Options is what a request asks for besides its prompt.
type Options struct {
	Model string
	User  string
	// CacheSalt is part of what a prompt must have in common with an earlier one to share with it; "" if there is none.
	CacheSalt string

	Sampling
	N            int // answers wanted
	MaxTokens    int // upper limit of the tokens of each; 0 if the client set none
	Stop         []string
	Stream       bool
	IncludeUsage bool
}

// Chat is a request as P/D serves it. All strings are copies: the body may be reused.
type Chat struct {
	Options
	Messages []Message
}

// Message is one turn.
type Message struct {
	Role, Name string
	// Parts holds the content in order. It is empty only for an assistant message without content.
	Parts []Part
	// Plain says that the content was one string and not a list of parts.
	Plain bool
}

// Part is a piece of text, or the place of an item.
type Part struct {
	Text   string
	IsItem bool
	Item   int // with IsItem: index into the request's media positions, in prompt order from 0
}

// ParseChat reads the body that a P/D gets: a client's body in which each media part is replaced by
// {"type":"afterimage_item","index":i}, i counting from 0 in prompt order. Fields that would change
// the answer and are not served are refused by name; fields that this package does not know are
// ignored, as vLLM does. Every error is an *Error with status 400.
func ParseChat(body []byte) (*Chat, error) {
	c := &Chat{}
	var parts []Part
	items := 0
	w := walk{scanner: scanner{b: body}}
	w.part = func(p *rawPart) error {
		part, err := p.chatPart(items)
		if part.IsItem {
			items++
		}
		parts = append(parts, part)
		return err
	}
	w.message = func(m *rawMessage) error {
		c.Messages = append(c.Messages, Message{Role: m.role, Name: m.name, Parts: parts, Plain: m.plain})
		parts = nil
		return m.checkExtras()
	}
	top, err := w.body()
	if err != nil {
		return nil, err
	}
	if err := c.Sampling.read(top); err != nil {
		return nil, err
	}
	if c.Logprobs, c.TopLogprobs, err = top.logprobs(); err != nil {
		return nil, err
	}
	if c.MaxTokens, err = top.maxTokens("max_completion_tokens", "max_tokens"); err != nil {
		return nil, err
	}
	if err := c.Options.read(top); err != nil {
		return nil, err
	}
	return c, top.refuseUnsupported(unsupported)
}

// Items returns the number of item parts.
func (c *Chat) Items() int {
	n := 0
	for _, m := range c.Messages {
		for _, p := range m.Parts {
			if p.IsItem {
				n++
			}
		}
	}
	return n
}

// chatPart converts a text or item part; next is the index that an item must have.
func (p *rawPart) chatPart(next int) (Part, error) {
	switch p.kind {
	case kindItem:
		i, ok, err := fields{"index": p.item}.integer("index")
		if err != nil || !ok || i != int64(next) {
			return Part{}, badParam(p.path()+".index", "%s.index must be %d, its place in the prompt.", p.path(), next)
		}
		return Part{IsItem: true, Item: next}, nil
	case kindImage:
		return Part{}, badParam(p.path(), "%s is an image; a P/D takes items only: send images to the gateway.", p.path())
	}
	if err := p.asText(); err != nil {
		return Part{}, err
	}
	return Part{Text: string(p.text.bytes())}, nil
}

// read reads what both APIs have, but for the sampling.
func (c *Options) read(f fields) (err error) {
	if c.Model, err = f.str("model"); err != nil {
		return err
	}
	if c.User, err = f.str("user"); err != nil {
		return err
	}
	if c.CacheSalt, err = f.cacheSalt(); err != nil {
		return err
	}
	if c.Stream, err = f.boolean("stream"); err != nil {
		return err
	}
	if c.IncludeUsage, err = f.includeUsage(c.Stream); err != nil {
		return err
	}
	if c.Stop, err = f.stops(); err != nil {
		return err
	}
	if c.N, err = f.choices(); err != nil {
		return err
	}
	if c.N > MaxChoices {
		return badValue("n", pyInt(int64(c.N)), "n must be at most %d, got %d.", MaxChoices, c.N)
	}
	return nil
}
