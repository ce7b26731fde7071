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
	seq := must[engine.Sequence](t)(model.NewSequence(t.Context()))
	defer seq.Close()
	feed := func(s string, special, last bool) {
		toks := must[[]int32](t)(model.Tokenize(s, special))
		if err := seq.PrefillTokens(t.Context(), toks, last); err != nil {
			t.Fatal(err)
		}
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

// feedRows decodes and encodes an image file straight into seq.
func feedRows(t *testing.T, seq engine.Sequence, file []byte) {
	t.Helper()
	eng := encoderEngine(t, 0)
	px := must[media.Pixels](t)(media.Decode(t.Context(), file, eng.Spec().Processing, media.DefaultLimits()))
	l := must[embedding.Layout](t)(eng.Layout(t.Context(), px.Width, px.Height))
	rows := make([]byte, l.Rows()*cols*embedding.Float32.Bytes())
	if err := eng.Encode(t.Context(), px, rows); err != nil {
		t.Fatal(err)
	}
	if err := seq.PrefillRows(t.Context(), l.Parts[0], rows); err != nil {
		t.Fatal(err)
	}
}

// greedy decodes the likeliest answer.
func greedy(t *testing.T, model engine.Text, seq engine.Sequence) string {
	t.Helper()
	sampler := must[*engine.Sampler](t)(engine.NewSampler(engine.Sampling{}))
	var out []byte
	for {
		tok := must[int32](t)(sampler.Pick(seq.Logits()))
		if model.EndOfGeneration(tok) {
			return string(out)
		}
		out = append(out, model.Piece(tok)...)
		if err := seq.PrefillTokens(t.Context(), []int32{tok}, true); err != nil {
			t.Fatal(err)
		}
	}
}
