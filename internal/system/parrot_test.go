// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"context"

	"afterimage/internal/engine"
)

// parrot is the modelled text engine with two tricks, for clients that must know what they will read.
// Asked to "repeat after me: …" it does, a byte per token, so that every character beyond ASCII is cut.
// Asked to "roll dice" all letters are equally likely, so that the seed alone decides.
type parrot struct{ engine.Text }

func newParrot(t engine.Text) engine.Text { return parrot{t} }

// NewSequence implements engine.Text.
func (p parrot) NewSequence(ctx context.Context) (engine.Sequence, error) {
	s, err := p.Text.NewSequence(ctx)
	if err != nil {
		return nil, err
	}
	return &parrotSequence{Sequence: s, text: p.Text}, nil
}

type parrotSequence struct {
	engine.Sequence
	text   engine.Text
	prompt []byte
	answer int // tokens of the answer that were fed back
	ready  bool
}

// PrefillTokens implements engine.Sequence. The tokens of the modelled engine are bytes.
func (s *parrotSequence) PrefillTokens(ctx context.Context, toks []int32, logits bool) error {
	switch {
	case s.ready:
		s.answer += len(toks)
	default:
		for _, t := range toks {
			s.prompt = append(s.prompt, endOfTurn)
			if t < 256 {
				s.prompt[len(s.prompt)-1] = byte(t)
			}
		}
		s.ready = logits
	}
	return s.Sequence.PrefillTokens(ctx, toks, logits)
}

// endOfTurn stands for control tokens in a prompt; no UTF-8 has it.
const endOfTurn = 0xff

// Logits implements engine.Sequence.
func (s *parrotSequence) Logits() []float32 {
	l := s.Sequence.Logits()
	_, words, repeat := bytes.Cut(s.prompt, []byte("repeat after me: "))
	words, _, _ = bytes.Cut(words, []byte{endOfTurn})
	switch {
	case repeat && s.answer < len(words):
		clear(l)
		l[words[s.answer]] = 20
	case repeat:
		clear(l)
		for t := range l {
			if s.text.EndOfGeneration(int32(t)) {
				l[t] = 20
			}
		}
	case bytes.Contains(s.prompt, []byte("roll dice")):
		clear(l)
		for t := 'a'; t <= 'z'; t++ {
			l[t] = 20
		}
	}
	return l
}
