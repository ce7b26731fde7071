// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"afterimage/internal/engine"
	"afterimage/internal/engine/llama"
	"afterimage/internal/gguf"
	"afterimage/internal/media"
)

// The tests of this file run pairs with the real engine. They need what `make deps` fetches.

// TestMain keeps the native log out of the output of passing tests.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// library loads the native code. The working directory becomes the top of the repository.
func library(t *testing.T) *llama.Library {
	t.Helper()
	t.Chdir(filepath.Join("..", ".."))
	dir, err := llama.FindDir("")
	if err != nil {
		t.Fatal(err)
	}
	lib, err := llama.Open(dir, llama.GPUOff)
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// load opens the two halves of the pair in dir.
func load(t *testing.T, lib *llama.Library, dir string) (*llama.Encoder, *llama.Text) {
	t.Helper()
	path := filepath.Join(dir, TextFile)
	enc, err := llama.NewEncoder(lib, llama.EncoderConfig{Model: path, MMProj: filepath.Join(dir, ProjectorFile)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { enc.Close() })
	text, err := llama.NewText(lib, llama.TextConfig{Model: path, ContextTokens: 1024, Slots: 1, Template: ChatTemplate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { text.Close() })
	return enc, text
}

// bands returns a picture of upright bands.
func bands(side int, rgb ...[3]byte) media.Pixels {
	px := media.Pixels{Width: side, Height: side}
	for i := range side * side {
		c := rgb[i%side*len(rgb)/side]
		px.RGB = append(px.RGB, c[:]...)
	}
	return px
}

// ask puts a picture and a question to a pair and returns at most n tokens of the likeliest answer.
func ask(t *testing.T, enc *llama.Encoder, text *llama.Text, px media.Pixels, question string, n int) string {
	t.Helper()
	const mark = "[picture]"
	prompt, err := text.Prompt([]engine.Message{{Role: "user", Content: mark + question}})
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(prompt, mark)
	seq := &alone{run: text.Runner()}
	seq.run.Truncate(0, 0, 0)
	feed(t, seq, text.Begin())
	feedText(t, seq, text, before)
	feedPicture(t, seq, enc, px)
	feedText(t, seq, text, after)
	sampler, err := engine.NewSampler(engine.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	var answer bytes.Buffer
	for range n {
		tok, err := sampler.Pick(seq.run.Logits(0))
		if err != nil {
			t.Fatal(err)
		}
		if text.EndOfGeneration(tok) {
			break
		}
		answer.Write(text.Piece(tok))
		feed(t, seq, []int32{tok})
	}
	return answer.String()
}

// alone is sequence 0 of a model that has no other.
type alone struct {
	run engine.Runner
	pos int
}

// feedPicture encodes a picture and appends it to a sequence.
func feedPicture(t *testing.T, seq *alone, enc *llama.Encoder, px media.Pixels) {
	t.Helper()
	layout, err := enc.Layout(t.Context(), px.Width, px.Height)
	if err != nil {
		t.Fatal(err)
	}
	rowBytes := enc.Spec().Cols * 4
	rows := make([]byte, layout.Rows()*rowBytes)
	if err := enc.Encode(t.Context(), px, rows); err != nil {
		t.Fatal(err)
	}
	for _, part := range layout.Parts {
		feed(t, seq, part.Tokens)
		if part.Rows == 0 {
			continue
		}
		if err := seq.run.PrefillRows(0, seq.pos, part, 0, part.Rows, rows[:part.Rows*rowBytes]); err != nil {
			t.Fatal(err)
		}
		seq.pos += part.Positions
		rows = rows[part.Rows*rowBytes:]
	}
}

// feedText appends text to a sequence.
func feedText(t *testing.T, seq *alone, text *llama.Text, s string) {
	t.Helper()
	toks, err := text.Tokenize(s, true)
	if err != nil {
		t.Fatal(err)
	}
	feed(t, seq, toks)
}

// feed appends tokens, if there are any, to a sequence.
func feed(t *testing.T, seq *alone, toks []int32) {
	t.Helper()
	if len(toks) == 0 {
		return
	}
	if err := seq.run.PrefillTokens(0, seq.pos, toks, true); err != nil {
		t.Fatal(err)
	}
	seq.pos += len(toks)
}

// firstColours returns the first n words of an answer that are colours.
func firstColours(answer string, n int) []string {
	words := strings.FieldsFunc(answer, func(r rune) bool { return !unicode.IsLetter(r) })
	words = slices.DeleteFunc(words, func(w string) bool { return !slices.Contains(colours, w) })
	return words[:min(n, len(words))]
}

// TestDemoNamesColours makes the demo, verifies it with a few pictures, and asks it about plain ones.
func TestDemoNamesColours(t *testing.T) {
	lib := library(t)
	found, err := filepath.Glob(filepath.Join(".cache", "models", "smollm2-135m", "*.gguf"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the demo's text model is missing (found %q, %v); run `make deps`", found, err)
	}
	dir := filepath.Join(t.TempDir(), "demo")
	if err := WriteDemo(dir, found[0]); err != nil {
		t.Fatal(err)
	}
	head, err := gguf.Open(filepath.Join(dir, TextFile))
	if err != nil {
		t.Fatal(err)
	}
	enc, text := load(t, lib, dir)
	res, err := Verify(t.Context(), enc, head, 20, nil)
	if err != nil || res.Err() != nil || res.Cells != 320 {
		t.Errorf("Verify = %+v, %v, %v, want 320 cells and at least 85 %% right", res, err, res.Err())
	}
	t.Logf("%d of %d cells right, encode %v", res.Right, res.Cells, res.Encode)
	red, green, blue, white := [3]byte{220, 30, 30}, [3]byte{30, 150, 40}, [3]byte{30, 70, 220}, [3]byte{255, 255, 255}
	for _, tt := range []struct {
		picture media.Pixels
		want    []string
	}{
		{bands(224, red), []string{"red"}},
		{bands(224, green), []string{"green"}},
		{bands(224, blue), []string{"blue"}},
		{bands(224, blue, white, red), []string{"blue", "white", "red"}},
	} {
		answer := ask(t, enc, text, tt.picture, "Name the colors of the picture.", 16)
		t.Logf("%v: %q", tt.want, answer)
		if first := firstColours(answer, len(tt.want)); !slices.Equal(first, tt.want) {
			t.Errorf("answer %q names %q first, want %q", answer, first, tt.want)
		}
	}
}

// TestRandomPairsRun puts a picture through every kind of pair.
func TestRandomPairsRun(t *testing.T) {
	lib := library(t)
	for _, p := range Projectors() {
		for _, s := range Sizes() {
			t.Run(string(p)+" "+string(s), func(t *testing.T) {
				dir := t.TempDir()
				if err := WriteRandom(dir, RandomOptions{Projector: p, Size: s, Seed: 1}); err != nil {
					t.Fatal(err)
				}
				enc, text := load(t, lib, dir)
				if e, x := enc.Spec().Cols, text.Spec().Cols; e != x || e != shapes[s].text.width {
					t.Errorf("encoder gives %d columns, text model takes %d, want %d", e, x, shapes[s].text.width)
				}
				ask(t, enc, text, bands(shapes[s].tower.image, [3]byte{200, 10, 90}, [3]byte{0, 80, 7}), "What?", 4)
			})
		}
	}
}
