// SPDX-License-Identifier: Apache-2.0

package model

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"afterimage/internal/gguf"
)

// fileSum returns the first 16 hex digits of a file's SHA-256.
func fileSum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// TestRandomIsReproducible holds the bytes of every kind of pair: benchmarks name pairs by seed, and
// figures of different days are compared.
func TestRandomIsReproducible(t *testing.T) {
	for _, tt := range []struct {
		RandomOptions
		text, projector string
	}{
		{RandomOptions{MLP, Tiny, 1}, "e57da1db7f6ec405", "a42833afa00dc364"},
		{RandomOptions{InternVL, Tiny, 1}, "a10dc3d8991589d7", "40496497af1e1118"},
		{RandomOptions{Gemma3, Tiny, 1}, "e57da1db7f6ec405", "57e7da89d6519039"},
		{RandomOptions{Qwen2VL, Tiny, 1}, "ca87bd4f2d20e06b", "8875b2ecf9cd2955"},
		{RandomOptions{MLP, Tiny, 2}, "0fc6f0cb0d7a9cf5", "d33cca0a3acf13ce"},
		{RandomOptions{Qwen2VL, Small, 1}, "5f354af4f7ed6e91", "53516c9b5dff807b"},
		{RandomOptions{MLP, Bench, 1}, "1fb7580b0e851f5f", "6e15e9764dc427a8"},
	} {
		dir := filepath.Join(t.TempDir(), "made")
		if err := WriteRandom(dir, tt.RandomOptions); err != nil {
			t.Fatal(err)
		}
		text, projector := fileSum(t, filepath.Join(dir, TextFile)), fileSum(t, filepath.Join(dir, ProjectorFile))
		if text != tt.text || projector != tt.projector {
			t.Errorf("%v: sums %s, %s, want %s, %s", tt.RandomOptions, text, projector, tt.text, tt.projector)
		}
	}
}

func TestRandomDefaults(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	if err := WriteRandom(a, RandomOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := WriteRandom(b, RandomOptions{Projector: MLP, Size: Tiny}); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{TextFile, ProjectorFile} {
		if got, want := fileSum(t, filepath.Join(a, f)), fileSum(t, filepath.Join(b, f)); got != want {
			t.Errorf("%s of empty options has sum %s, want that of a tiny mlp, %s", f, got, want)
		}
	}
}

// TestRandomShapes checks what must agree between the two files of a pair.
func TestRandomShapes(t *testing.T) {
	for _, p := range Projectors() {
		for _, s := range Sizes() {
			if s == Bench && testing.Short() {
				continue
			}
			dir := t.TempDir()
			if err := WriteRandom(dir, RandomOptions{Projector: p, Size: s, Seed: 3}); err != nil {
				t.Fatal(err)
			}
			checkPair(t, dir, p)
		}
	}
}

func checkPair(t *testing.T, dir string, p Projector) {
	t.Helper()
	text, err := gguf.Open(filepath.Join(dir, TextFile))
	if err != nil {
		t.Fatal(err)
	}
	vision, err := gguf.Open(filepath.Join(dir, ProjectorFile))
	if err != nil {
		t.Fatal(err)
	}
	arch, _ := text.String("general.architecture")
	width, _ := text.Uint(arch + ".embedding_length")
	cols, _ := vision.Uint("clip.vision.projection_dim")
	if width == 0 || width != cols {
		t.Errorf("%s: text model of width %d, projector of %d", p, width, cols)
	}
	tokens, _ := text.Strings("tokenizer.ggml.tokens")
	emb, _ := text.Tensor("token_embd.weight")
	if int(emb.Rows()) != len(tokens) || len(tokens) < 256 {
		t.Errorf("%s: %d tokens, %d embeddings", p, len(tokens), emb.Rows())
	}
	if got, _ := vision.String("clip.projector_type"); got != p.fileName() {
		t.Errorf("%s: projector type %q, want %q", p, got, p.fileName())
	}
	if _, ok := vision.Uint(SquareKey); ok {
		t.Errorf("%s: has %s, which only the demo needs", p, SquareKey)
	}
}

// TestByteLetters checks that the vocabulary names 256 different bytes and writes a space as Ġ.
func TestByteLetters(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range byteLetters() {
		seen[l] = true
	}
	if got := byteLetters(); len(seen) != 256 || got[' '] != "Ġ" || got['\n'] != "Ċ" || got['a'] != "a" {
		t.Errorf("%d letters, space %q, newline %q, a %q, want 256, Ġ, Ċ, a", len(seen), got[' '], got['\n'], got['a'])
	}
}

func TestRandomRefuses(t *testing.T) {
	taken := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		dir  string
		o    RandomOptions
		want string
	}{
		{t.TempDir(), RandomOptions{Projector: "resampler"}, `unknown projector "resampler", want one of ["mlp"`},
		{t.TempDir(), RandomOptions{Size: "huge"}, `unknown size "huge", want one of ["tiny"`},
		{taken, RandomOptions{}, taken},
	} {
		if err := WriteRandom(tt.dir, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want one with %q", tt.o, err, tt.want)
		}
	}
}
