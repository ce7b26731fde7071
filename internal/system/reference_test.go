// SPDX-License-Identifier: Apache-2.0

package system

import (
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/media"
)

// turn is a user's message for reference: its elements are string (text) and []byte (an image file).
type turn []any

// reference answers a conversation of user turns with the engines alone: one process, no roles, no
// network. It writes the prompt out by hand, so that it shares no code with what it is held against.
func reference(t *testing.T, change func(*options), turns ...turn) string {
	t.Helper()
	o := options{context: 2048, answerLen: 12}
	if change != nil {
		change(&o)
	}
	model := textEngine(t, o)
	seq := &alone{run: model.Runner()}
	feed := func(s string, special, last bool) {
		toks := must[[]int32](t)(model.Tokenize(s, special))
		seq.tokens(t, toks, last)
	}
	for _, parts := range turns {
		feed("<|im_start|>user\n", true, false)
		afterText := false
		for _, p := range parts {
			s, isText := p.(string)
			if !isText {
				feedRows(t, seq, p.([]byte))
			} else if afterText {
				feed("\n"+s, false, false)
			} else {
				feed(s, false, false)
			}
			afterText = isText
		}
		feed("<|im_end|>\n", true, false)
	}
	feed("<|im_start|>assistant\n", true, true)
	return greedy(t, model, seq)
}

// alone is sequence 0 of a model that has no other.
type alone struct {
	run engine.Runner
	pos int
}

// tokens appends prompt tokens.
func (s *alone) tokens(t *testing.T, toks []int32, last bool) {
	t.Helper()
	for len(toks) > 0 {
		n := min(len(toks), s.run.Limits().Batch)
		if err := s.run.PrefillTokens(0, s.pos, toks[:n], last && n == len(toks)); err != nil {
			t.Fatal(err)
		}
		s.pos += n
		toks = toks[n:]
	}
}

// feedRows decodes and encodes an image file straight into seq.
func feedRows(t *testing.T, seq *alone, file []byte) {
	t.Helper()
	eng := encoderEngine(t, 0)
	px := must[media.Pixels](t)(media.Decode(t.Context(), file, eng.Spec().Processing, media.DefaultLimits()))
	l := must[embedding.Layout](t)(eng.Layout(t.Context(), px.Width, px.Height))
	rows := make([]byte, l.Rows()*cols*embedding.Float32.Bytes())
	if err := eng.Encode(t.Context(), px, rows); err != nil {
		t.Fatal(err)
	}
	if err := seq.run.PrefillRows(0, seq.pos, l.Parts[0], 0, l.Rows(), rows); err != nil {
		t.Fatal(err)
	}
	seq.pos += l.Rows()
}

// greedy decodes the likeliest answer.
func greedy(t *testing.T, model engine.Text, seq *alone) string {
	t.Helper()
	sampler := must[*engine.Sampler](t)(engine.NewSampler(engine.Sampling{}))
	var out []byte
	for {
		tok := must[int32](t)(sampler.Pick(seq.run.Logits(0)))
		if model.EndOfGeneration(tok) {
			return string(out)
		}
		out = append(out, model.Piece(tok)...)
		if err := seq.run.Decode([]engine.Next{{Pos: seq.pos, Token: tok}}); err != nil {
			t.Fatal(err)
		}
		seq.pos++
	}
}
