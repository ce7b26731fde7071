// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"afterimage/internal/engine"
	"afterimage/internal/model"
)

func TestTokenizeAndPieces(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1})
	whole := func(toks []int32) string {
		var b strings.Builder
		for _, tok := range toks {
			b.Write(x.Piece(tok))
		}
		return b.String()
	}
	f := func(text string, special bool, n int, want string) {
		t.Helper()
		toks, err := x.Tokenize(text, special)
		if err != nil {
			t.Fatal(err)
		}
		if len(toks) != n || whole(toks) != want {
			t.Errorf("%q, special %v: %d tokens that read %q; want %d and %q", text, special, len(toks), whole(toks), n, want)
		}
	}
	f("", true, 0, "")
	f("abc", false, 3, "abc")
	f("é\x00\n", false, 4, "é\x00\n")
	f(strings.Repeat("x", 10000), false, 10000, strings.Repeat("x", 10000))
	// What a user writes stays text; only a template's control tokens become tokens, which read empty.
	f("<|im_end|>", false, 10, "<|im_end|>")
	f("a<|im_end|>", true, 2, "a")
	_, err := x.Tokenize(strings.Repeat("x", maxText+1), false)
	wantError(t, err, "67108865", "67108864")

	longest := 0
	for tok := range int32(x.Spec().Vocab) {
		longest = max(longest, len(x.model.piece(tok, true)))
	}
	if got := x.Spec().PieceBytes; got != max(longest, 4) {
		t.Errorf("PieceBytes is %d, the longest token has %d", got, longest)
	}
	end, err := x.Tokenize("<|endoftext|>a", true)
	if err != nil {
		t.Fatal(err)
	}
	if !x.EndOfGeneration(end[0]) || x.EndOfGeneration(end[1]) {
		t.Errorf("ends of generation: %v %v, want true false", x.EndOfGeneration(end[0]), x.EndOfGeneration(end[1]))
	}
}

func TestPrompt(t *testing.T) {
	p := randomPair(t, model.MLP)
	msgs := []engine.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Grüße"}}
	f := func(key string, val any, want string) {
		t.Helper()
		path := p.text
		if key != "" {
			path = withKey(t, path, key, val)
		}
		got, err := newText(t, TextConfig{Model: path, Slots: 1}).Prompt(msgs)
		if err != nil || got != want {
			t.Errorf("%s=%v: got %q, %v; want %q", key, val, got, err, want)
		}
	}
	chatml := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nGrüße<|im_end|>\n<|im_start|>assistant\n"
	const key = "tokenizer.chat_template"
	f("", nil, chatml)
	f(key, "{{ a template that llama.cpp does not know }}", chatml)
	f(key, "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}<assistant>", "<system>Be brief.<user>Grüße<assistant>")
	// One that cannot be run, with the marks of Llama 3, is replaced by the library's.
	f(key, "{% for <|start_header_id|> <|end_header_id|> <|eot_id|>", "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nGrüße<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")
	f(key, "llama3", "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nGrüße<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")

	given := newText(t, TextConfig{Model: p.text, Slots: 1, Template: "{{ messages[0].content }}!"})
	if got, err := given.Prompt(msgs); err != nil || got != "Be brief.!" {
		t.Errorf("a template that is given: %q, %v", got, err)
	}
	for _, bad := range []string{"no-such-template", "{% for"} {
		_, err := NewText(library(t), TextConfig{Model: p.text, Slots: 1, Template: bad})
		wantError(t, err, bad, "llama.cpp")
	}

	x := newText(t, TextConfig{Model: p.text, Slots: 1})
	_, err := x.Prompt(nil)
	wantError(t, err, "at least one message")
	_, err = x.Prompt([]engine.Message{{Role: "user", Content: "ok"}, {Role: "user", Content: "a\x00b"}})
	wantError(t, err, "message 1", "NUL")
	long := strings.Repeat("w", 1<<20)
	if got, err := x.Prompt([]engine.Message{{Role: "user", Content: long}}); err != nil || !strings.Contains(got, long) {
		t.Errorf("a message of 1 MiB: %d bytes, %v", len(got), err)
	}
}

func TestBegin(t *testing.T) {
	p := randomPair(t, model.MLP)
	if got := newText(t, TextConfig{Model: p.text, Slots: 1}).Begin(); len(got) != 0 {
		t.Errorf("begins with %v, and the vocabulary asks for nothing", got)
	}
	path := withKey(t, withKey(t, p.text, "tokenizer.ggml.add_bos_token", true), "tokenizer.ggml.bos_token_id", uint32(257))
	x := newText(t, TextConfig{Model: path, Slots: 1})
	if got := x.Begin(); !slices.Equal(got, []int32{257}) {
		t.Errorf("begins with %v, want [257]", got)
	}
	// Token 257 is <|im_start|>, with which chatml begins: it must not stand there twice.
	got, err := x.Prompt([]engine.Message{{Role: "user", Content: "a"}})
	if want := "user\na<|im_end|>\n<|im_start|>assistant\n"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// realModel finds the demo's text model.
func realModel(t *testing.T) string {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(wd, "..", "..", "..", ".cache", "models", "smollm2-135m", "*.gguf"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the demo's text model is missing (%v, %v); run `make deps`", found, err)
	}
	return found[0]
}

// TestRealWords asks the demo's text model a question that even 135 million parameters know.
func TestRealWords(t *testing.T) {
	x := newText(t, TextConfig{Model: realModel(t), Slots: 1, ContextTokens: 512, Template: "chatml"})
	prompt, err := x.Prompt([]engine.Message{{Role: "user", Content: "What is the capital of France?"}})
	if err != nil {
		t.Fatal(err)
	}
	toks, err := x.Tokenize(prompt, true)
	if err != nil {
		t.Fatal(err)
	}
	s := newSequence(x)
	prefill(t, s, append(x.Begin(), toks...), true)
	greedy, err := engine.NewSampler(engine.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	for range 20 {
		tok, err := greedy.Pick(s.run.Logits(0))
		if err != nil {
			t.Fatal(err)
		}
		if x.EndOfGeneration(tok) {
			break
		}
		answer.Write(x.Piece(tok))
		if err := x.Runner().Decode([]engine.Next{{Pos: s.pos, Token: tok}}); err != nil {
			t.Fatal(err)
		}
		s.pos++
	}
	if got, want := answer.String(), "The capital of France is Paris."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
