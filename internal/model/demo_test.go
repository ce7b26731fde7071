// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"afterimage/internal/gguf"
)

// width is that of SmolLM2-135M.
const width = 576

// fakeText writes a text model that has no more than what WriteDemo looks at: the words given, with
// the embedding of word i zero but for 8 at place i. It returns the path.
func fakeText(t *testing.T, width int, words []string) string {
	t.Helper()
	tokens := []string{"other"}
	for _, w := range words {
		tokens = append(tokens, "Ġ"+w)
	}
	w := &gguf.Writer{}
	w.Set("general.architecture", "llama")
	w.Set("tokenizer.ggml.tokens", tokens)
	w.Add("token_embd.weight", gguf.F32, func(dst []float32, off int) {
		for i := range dst {
			dst[i] = 0
			if word, place := (off+i)/width-1, (off+i)%width; word == place {
				dst[i] = 8
			}
		}
	}, width, len(tokens))
	path := filepath.Join(t.TempDir(), "smol.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWriteDemo(t *testing.T) {
	text, dir := fakeText(t, width, colours), filepath.Join(t.TempDir(), "demo")
	if err := WriteDemo(dir, text); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(filepath.Join(dir, ProjectorFile))
	if err != nil {
		t.Fatal(err)
	}
	if side, ok := f.Uint(SquareKey); side != 224 || !ok {
		t.Errorf("%s = %d, %v, want 224, true", SquareKey, side, ok)
	}
	// Word c lies along axis c, so value c of a row is 8 times the score of colour c.
	for c := range colours {
		weights, err := f.Row("mm.model.mlp.3.weight", c)
		if err != nil {
			t.Fatal(err)
		}
		for j, got := range weights {
			bits := binary.LittleEndian.Uint32(colourMap[4*(j*len(colours)+c):])
			if want := 8 * math.Float32frombits(bits); math.Abs(float64(got-want)) > 1e-7+1e-3*math.Abs(float64(want)) {
				t.Fatalf("weight of feature %d for %s = %v, want %v", j, colours[c], got, want)
			}
		}
	}
	if other, err := f.Row("mm.model.mlp.3.weight", len(colours)); err != nil || other[0] != 0 {
		t.Errorf("weight beyond the words = %v, %v, want 0", other[0], err)
	}
	if got, want := fileSum(t, filepath.Join(dir, ProjectorFile)), "1493884510a477fa"; got != want {
		t.Errorf("projector has sum %s, want %s", got, want)
	}
}

// TestWriteDemoTwice runs over an existing demo, given by its own text model, by a link to it, and by
// another one.
func TestWriteDemoTwice(t *testing.T) {
	first, second, dir := fakeText(t, width, colours), fakeText(t, width, append(colours[:11:11], "more")), t.TempDir()
	symlink := filepath.Join(t.TempDir(), "link.gguf")
	if err := os.Symlink(first, symlink); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, TextFile)
	for _, from := range []string{symlink, own, first, second} {
		want := fileSum(t, from)
		if err := WriteDemo(dir, from); err != nil {
			t.Fatal(err)
		}
		if got := fileSum(t, own); got != want {
			t.Errorf("from %s: text model has sum %s, want %s", from, got, want)
		}
	}
	st, err := os.Lstat(own)
	if err != nil || !st.Mode().IsRegular() {
		t.Errorf("text model is %v, %v, want a regular file", st.Mode(), err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 2 {
		t.Errorf("folder holds %v, want the two files of the pair", left)
	}
}

func TestWriteDemoRefuses(t *testing.T) {
	random := t.TempDir()
	if err := WriteRandom(random, RandomOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, want string }{
		{filepath.Join(random, "missing"), "no such file"},
		{filepath.Join(random, ProjectorFile), "not a text model"},
		{filepath.Join(random, TextFile), `no single token for " black"`},
		{fakeText(t, 64, colours), "embeddings of 64 values, but the demo is made for the 576"},
	} {
		dir := filepath.Join(t.TempDir(), "demo")
		if err := WriteDemo(dir, tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.path, err, tt.want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: a refused model left %s", tt.path, dir)
		}
	}
}

func TestCopyFile(t *testing.T) {
	from := fakeText(t, 64, colours)
	to := filepath.Join(t.TempDir(), "copy")
	if err := copyFile(from, to); err != nil {
		t.Fatal(err)
	}
	if got, want := fileSum(t, to), fileSum(t, from); got != want {
		t.Errorf("copy has sum %s, want %s", got, want)
	}
}
