// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/gguf"
	"afterimage/internal/media"
	"afterimage/internal/model"
)

// encode returns the rows of a picture.
func encode(t *testing.T, e *Encoder, px media.Pixels) []byte {
	t.Helper()
	l, err := e.Layout(t.Context(), px.Width, px.Height)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, l.Rows()*e.Spec().Cols*e.Spec().DType.Bytes())
	if err := e.Encode(t.Context(), px, dst); err != nil {
		t.Fatal(err)
	}
	return dst
}

func TestLayouts(t *testing.T) {
	f := func(p model.Projector, s size, rows, positions, cells int) {
		t.Helper()
		e := newEncoder(t, randomPair(t, p))
		l, err := e.Layout(t.Context(), s.width, s.height)
		if err != nil {
			t.Fatal(err)
		}
		if l.Rows() != rows || l.Positions() != positions || l.KVCells() != cells {
			t.Errorf("%s, %v: %d rows, %d positions, %d cells; want %d, %d, %d", p, s, l.Rows(), l.Positions(), l.KVCells(), rows, positions, cells)
		}
		if l.Rows() > e.Spec().MaxRows {
			t.Errorf("%s, %v: %d rows exceed the announced %d", p, s, l.Rows(), e.Spec().MaxRows)
		}
	}
	f(model.MLP, size{640, 480}, 16, 16, 16)
	f(model.InternVL, size{448, 448}, 8, 10, 10) // two marks round an overview and a tile
	f(model.Gemma3, size{64, 64}, 4, 6, 6)
	f(model.Qwen2VL, size{640, 480}, 391, 2+23, 2+391) // 23 x 17 patches: the longer side moves the position
	f(model.Qwen2VL, size{1, 1}, 9, 2+3, 2+9)          // scaled up to 3 x 3
}

func TestSpec(t *testing.T) {
	p := randomPair(t, model.Qwen2VL)
	s := newEncoder(t, p).Spec()
	if s.Engine != library(t).Identity() || !strings.HasPrefix(s.Engine, "llama.cpp "+wantVersion+" cpu ") {
		t.Errorf("engine is %q", s.Engine)
	}
	if s.Cols != 64 || s.DType != embedding.Float32 || s.MaxRows != 4096 || s.Processing.Background != embedding.DefaultBackground || s.Processing.Square != 0 {
		t.Errorf("spec is %+v", s)
	}
	x := newText(t, TextConfig{Model: p.text}).Spec()
	if x.Engine != s.Engine || x.Cols != s.Cols || x.DType != s.DType || x.Model != s.Model {
		t.Errorf("the text side's spec %+v does not go with %+v", x, s)
	}
}

// Case K08: the fingerprint changes with everything that changes the output, and with nothing else.
func TestFingerprint(t *testing.T) {
	p := randomPair(t, model.MLP)
	first := newEncoder(t, p).Spec().Fingerprint
	if len(first) != 32 {
		t.Errorf("fingerprint %q has %d digits, want 32", first, len(first))
	}
	if got := newEncoder(t, randomPair(t, model.MLP)).Spec().Fingerprint; got != first {
		t.Errorf("equal files in another folder: %s, want %s", got, first)
	}
	raw, err := os.ReadFile(p.projector)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-40] ^= 1 // in the last tensor
	if err := os.WriteFile(p.projector, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := newEncoder(t, p).Spec().Fingerprint; got == first {
		t.Error("one bit of a weight changed and the fingerprint did not")
	}
}

// The tokens round the rows come from the text model's vocabulary, so it belongs to the fingerprint.
func TestFingerprintCoversVocabulary(t *testing.T) {
	p := randomPair(t, model.InternVL)
	first := newEncoder(t, p)
	f, err := gguf.Open(p.text)
	if err != nil {
		t.Fatal(err)
	}
	toks, _ := f.Strings("tokenizer.ggml.tokens")
	toks = slices.Clone(toks)
	a, b := slices.Index(toks, "<img>"), slices.Index(toks, "</img>")
	toks[a], toks[b] = toks[b], toks[a]
	p.text = withKey(t, p.text, "tokenizer.ggml.tokens", toks)
	other := newEncoder(t, p)
	la, err := first.Layout(t.Context(), 64, 64)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := other.Layout(t.Context(), 64, 64)
	if err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(la, lb) || first.Spec().Fingerprint == other.Spec().Fingerprint {
		t.Errorf("layouts %v and %v have fingerprints %s and %s; want both to differ", la, lb, first.Spec().Fingerprint, other.Spec().Fingerprint)
	}
}

func TestNaNIsNotServed(t *testing.T) {
	p := randomPair(t, model.MLP)
	p.projector = rewrite(t, p.projector, "", nil, "mm.2.bias")
	e := newEncoder(t, p)
	err := e.Encode(t.Context(), picture(size{8, 8}), make([]byte, 16*64*4))
	if !errors.Is(err, embedding.ErrNotFinite) {
		t.Errorf("got %v, want ErrNotFinite", err)
	}
}

// Threads change the time that an encode takes, and not one bit.
func TestThreadsDoNotMatter(t *testing.T) {
	p := randomPair(t, model.Qwen2VL)
	two, err := NewEncoder(library(t), EncoderConfig{Model: p.text, MMProj: p.projector, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	px := picture(size{200, 120})
	if !bytes.Equal(encode(t, newEncoder(t, p), px), encode(t, two, px)) {
		t.Error("two threads give other rows than one")
	}
}

func TestEncodeRepeats(t *testing.T) {
	e := newEncoder(t, randomPair(t, model.InternVL))
	a, b := picture(size{200, 120}), picture(size{64, 64})
	first, other := encode(t, e, a), encode(t, e, b)
	if bytes.Equal(first, other) {
		t.Error("two pictures have equal rows")
	}
	if !bytes.Equal(encode(t, e, a), first) {
		t.Error("the same picture has other rows the second time")
	}
}

// Many callers share one mtmd context, in which two at once would crash the process.
func TestConcurrentCalls(t *testing.T) {
	e := newEncoder(t, randomPair(t, model.Qwen2VL))
	sizes := []size{{64, 64}, {200, 120}, {1, 1}, {20, 300}}
	want := make([][]byte, len(sizes))
	for i, s := range sizes {
		want[i] = encode(t, e, picture(s))
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for k := range 4 {
				s := sizes[(g+k)%len(sizes)]
				dst := make([]byte, len(want[(g+k)%len(sizes)]))
				if err := e.Encode(t.Context(), picture(s), dst); err != nil {
					t.Error(err)
				} else if !bytes.Equal(dst, want[(g+k)%len(sizes)]) {
					t.Errorf("%v: other rows than alone", s)
				}
				if _, err := e.Layout(t.Context(), 100+g, 100+k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestEncodeRefuses(t *testing.T) {
	e := newEncoder(t, randomPair(t, model.MLP))
	good := picture(size{8, 8})
	room := make([]byte, 16*64*4)
	f := func(px media.Pixels, dst []byte, parts ...string) {
		t.Helper()
		wantError(t, e.Encode(t.Context(), px, dst), parts...)
	}
	f(good, room[:len(room)-4], "4092 bytes", "4096", "8x8")
	f(good, nil, "0 bytes", "4096")
	f(media.Pixels{Width: 8, Height: 9, RGB: good.RGB}, room, "8x9", "192 bytes", "216")
	f(media.Pixels{}, room, "0x0", "at least 1x1")
	f(media.Pixels{Width: -1, Height: -1, RGB: make([]byte, 3)}, room, "-1x-1")
	f(media.Pixels{Width: 1 << 40, Height: 1 << 40}, room, "at most")
	if _, err := e.Layout(t.Context(), 10000, 10000); err == nil || !strings.Contains(err.Error(), "10000x10000") {
		t.Errorf("layout of 10000x10000: got error %v", err)
	}
}

func TestEncodeHonoursContext(t *testing.T) {
	e := newEncoder(t, randomPair(t, model.MLP))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	dst := make([]byte, 16*64*4)
	if err := e.Encode(done, picture(size{8, 8}), dst); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: got %v, want context.Canceled", err)
	}
	// While another call is inside, waiting ends with the context.
	e.turn <- struct{}{}
	waiting, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() { _, err := e.Layout(waiting, 9, 9); got <- err }()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while waiting: got %v, want context.Canceled", err)
	}
	e.leave()
}

func TestClosedEncoder(t *testing.T) {
	e := newEncoder(t, randomPair(t, model.MLP))
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := e.Encode(t.Context(), picture(size{8, 8}), make([]byte, 16*64*4)); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// A projector may demand pictures of one size, as the demo's does.
func TestSquare(t *testing.T) {
	p := randomPair(t, model.MLP)
	p.projector = withKey(t, p.projector, keySquare, uint32(56))
	e := newEncoder(t, p)
	if got := e.Spec().Processing.Square; got != 56 {
		t.Fatalf("square is %d, want 56", got)
	}
	encode(t, e, picture(size{56, 56}))
	_, err := e.Layout(t.Context(), 56, 57)
	wantError(t, err, "56x57", "56x56", "processing.square")

	p.projector = withKey(t, p.projector, keySquare, uint32(1<<20))
	_, err = NewEncoder(library(t), EncoderConfig{Model: p.text, MMProj: p.projector})
	wantError(t, err, p.projector, keySquare, "1048576")
}

// withKey copies a GGUF file with one metadata key set.
func withKey(t *testing.T, path, key string, val any) string {
	t.Helper()
	return rewrite(t, path, key, val, "")
}

// rewrite copies a GGUF file with one metadata key set, unless it is empty, and the values of the
// tensor called nan replaced by NaN.
func rewrite(t *testing.T, path, key string, val any, nan string) string {
	t.Helper()
	in, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var w gguf.Writer
	for _, k := range in.Keys() {
		if k != key {
			v, _ := in.Value(k)
			w.Set(k, v)
		}
	}
	if key != "" {
		w.Set(key, val)
	}
	for _, tensor := range in.Tensors() {
		dims := make([]int, len(tensor.Dims))
		for i, d := range tensor.Dims {
			dims[i] = int(d)
		}
		w.Add(tensor.Name, tensor.Type, func(dst []float32, off int) {
			for i := range dst {
				row, err := in.Row(tensor.Name, (off+i)/dims[0])
				if err != nil {
					t.Fatal(err)
				}
				dst[i] = row[(off+i)%dims[0]]
				if tensor.Name == nan {
					dst[i] = float32(math.NaN())
				}
			}
		}, dims...)
	}
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := w.WriteFile(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// truncated copies a file without its end.
func truncated(t *testing.T, path string, keep int64) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(out, raw[:min(keep, int64(len(raw)))], 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBadModelFiles(t *testing.T) {
	lib := library(t)
	p := randomPair(t, model.MLP)
	small := filepath.Join(t.TempDir(), "small")
	if err := model.WriteRandom(small, model.RandomOptions{Size: model.Small}); err != nil {
		t.Fatal(err)
	}
	f := func(text, projector string, parts ...string) {
		t.Helper()
		_, err := NewEncoder(lib, EncoderConfig{Model: text, MMProj: projector})
		wantError(t, err, parts...)
	}
	missing := filepath.Join(t.TempDir(), "missing.gguf")
	f(missing, p.projector, missing, "text model")
	f(p.text, missing, missing, "projector")
	f(p.projector, p.text, p.projector, "swapped", "--mmproj")
	f(p.text, p.text, p.text, "--mmproj", "--model")
	f(p.text, filepath.Join(small, model.ProjectorFile), small, "did not load", "mismatch", "--mmproj")
	for _, keep := range []int64{0, 3, 100, 10_000, 400_000} {
		cut := truncated(t, p.projector, keep)
		f(p.text, cut, cut)
		cut = truncated(t, p.text, keep)
		f(cut, p.projector, cut)
		_, err := NewText(lib, TextConfig{Model: cut})
		wantError(t, err, cut)
	}
	_, err := NewText(lib, TextConfig{Model: p.projector})
	wantError(t, err, p.projector, "swapped")
	_, err = NewText(lib, TextConfig{Model: missing})
	wantError(t, err, missing)
	_, err = NewEncoder(lib, EncoderConfig{Model: p.text, MMProj: p.projector, Threads: -1})
	wantError(t, err, "-1 threads")
}
