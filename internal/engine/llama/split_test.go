// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"afterimage/internal/batch"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/model"
)

// envSide names which side of TestSplitEqualsWhole this process is. Its models follow as arguments in
// envText and envProjector; the text side gets no projector.
const (
	envSide      = "AFTERIMAGE_TEST_SIDE"
	envText      = "AFTERIMAGE_TEST_TEXT"
	envProjector = "AFTERIMAGE_TEST_PROJECTOR"
)

const (
	promptBefore = "USER: "
	promptAfter  = "\ndescribe it.\nASSISTANT:"
	nGenerate    = 32
	splitKey     = embedding.Key("split")
)

// splitSizes are the pictures: tiny, square, wide and tall. The widest makes a Qwen2VL layout of more
// rows than one batch holds.
var splitSizes = []size{{1, 1}, {64, 64}, {200, 120}, {448, 448}, {640, 480}, {8000, 60}, {20, 2000}}

// gpuSizes and gpuGenerate are what the driver in software is given of it.
var gpuSizes = []size{{64, 64}, {200, 120}}

const (
	gpuGenerate = 6
	gpuContext  = 512
)

// picture paints a picture that depends on its size alone.
func picture(s size) media.Pixels {
	rng := rand.New(rand.NewPCG(uint64(s.width), uint64(s.height)))
	px := media.Pixels{Width: s.width, Height: s.height, RGB: make([]byte, s.width*s.height*3)}
	for i := range px.RGB {
		x, y, c := i/3%s.width, i/3/s.width, i%3
		px.RGB[i] = byte((x*(c+1)*255/s.width + y*(3-c)*255/s.height + int(rng.Uint32()&31)) / 4)
	}
	return px
}

// TestSplitEqualsWhole runs every projector on every picture in one process, and as Encoder and text
// engine in two processes that share nothing but the bytes of embedding objects in a pipe. Tokens and
// logits must agree to the bit.
func TestSplitEqualsWhole(t *testing.T) {
	if _, err := libraryDir(); err != nil {
		t.Fatal(err)
	}
	equal := 0
	for _, projector := range model.Projectors() {
		p := randomPair(t, projector)
		var want, got []result
		decode(t, side(t, "whole", p.text, p.projector), &want)
		enc := side(t, "encode", p.text, p.projector)
		txt := side(t, "text", p.text, "")
		pipe(t, enc, txt)
		decode(t, txt, &got)
		if err := enc.Wait(); err != nil {
			t.Fatalf("%s: encode side: %v\n%s", projector, err, enc.Stderr)
		}
		if len(want) != len(splitSizes) || len(got) != len(want) {
			t.Fatalf("%s: %d results whole, %d split, want %d", projector, len(want), len(got), len(splitSizes))
		}
		for i, s := range splitSizes {
			same := slices.Equal(got[i].Tokens, want[i].Tokens) && slices.EqualFunc(got[i].Logits, want[i].Logits, slices.Equal[[]uint32])
			if !same || len(want[i].Tokens) != nGenerate {
				t.Errorf("%s, %dx%d: split gives tokens %v, whole %v; logits differ from step %d on",
					projector, s.width, s.height, got[i].Tokens, want[i].Tokens, firstDifference(got[i], want[i]))
				continue
			}
			equal++
		}
	}
	if want := len(model.Projectors()) * len(splitSizes); equal != want {
		t.Errorf("%d of %d equal", equal, want)
	}
	t.Logf("%d of %d identical in tokens and logits", equal, len(model.Projectors())*len(splitSizes))
}

func firstDifference(a, b result) int {
	for i := range min(len(a.Logits), len(b.Logits)) {
		if !slices.Equal(a.Logits[i], b.Logits[i]) {
			return i
		}
	}
	return min(len(a.Logits), len(b.Logits))
}

// envGPU says what a side may compute with; "" is the CPU.
const envGPU = "AFTERIMAGE_TEST_GPU"

// sideSizes and sideTokens are less on a GPU that is a driver in software.
func sideSizes() []size {
	if sideGPU() == GPUOff {
		return splitSizes
	}
	return gpuSizes
}

func sideTokens() int {
	if sideGPU() == GPUOff {
		return nGenerate
	}
	return gpuGenerate
}

// sideContext is the context, 0 for the default.
func sideContext() int {
	if sideGPU() == GPUOff {
		return 0
	}
	return gpuContext
}

func sideGPU() GPU { return cmp.Or(GPU(os.Getenv(envGPU)), GPUOff) }

// side prepares this test binary to run as one side, for at most a minute.
func side(t *testing.T, name, text, projector string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), envSide+"="+name, envText+"="+text, envProjector+"="+projector)
	cmd.Stderr = &strings.Builder{}
	return cmd
}

// pipe starts from and connects what it writes to the input of to.
func pipe(t *testing.T, from, to *exec.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	from.Stdout, to.Stdin = w, r
	if err := from.Start(); err != nil {
		t.Fatal(err)
	}
}

// decode runs cmd to its end and decodes what it wrote.
func decode(t *testing.T, cmd *exec.Cmd, into any) {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Env[len(cmd.Env)-3:], err, cmd.Stderr)
	}
	if err := gob.NewDecoder(strings.NewReader(string(out))).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// sides are what a child process can be.
var sides = map[string]func(lib *Library, text, projector string) error{"whole": wholeSide, "encode": encodeSide, "text": textSide, "short": shortSide}

// runSide is main of a child process.
func runSide(name string) int {
	err := func() error {
		dir, err := libraryDir()
		if err != nil {
			return err
		}
		lib, err := Open(dir, sideGPU())
		if err != nil {
			return err
		}
		return sides[name](lib, os.Getenv(envText), os.Getenv(envProjector))
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func wholeSide(lib *Library, text, projector string) error {
	w, err := newWhole(lib, text, projector)
	if err != nil {
		return err
	}
	defer w.free()
	var out []result
	for _, s := range sideSizes() {
		r, err := w.run(promptBefore, picture(s), promptAfter, sideTokens())
		if err != nil {
			return fmt.Errorf("%v: %w", s, err)
		}
		out = append(out, r)
	}
	return gob.NewEncoder(os.Stdout).Encode(out)
}

// encodeSide writes one a1 object per picture, each behind its length.
func encodeSide(lib *Library, text, projector string) error {
	e, err := NewEncoder(lib, EncoderConfig{Model: text, MMProj: projector})
	if err != nil {
		return err
	}
	defer e.Close()
	for _, s := range sideSizes() {
		layout, err := e.Layout(context.Background(), s.width, s.height)
		if err != nil {
			return err
		}
		meta := embedding.Meta{Rows: layout.Rows(), Cols: e.Spec().Cols, DType: e.Spec().DType, Layout: layout}
		obj := make([]byte, embedding.A1.ObjectBytes(layout, meta.Cols, meta.DType))
		if err := e.Encode(context.Background(), picture(s), obj[embedding.A1.PayloadOffset(layout):]); err != nil {
			return err
		}
		if err := embedding.A1.Seal(obj, splitKey, meta); err != nil {
			return err
		}
		if err := binary.Write(os.Stdout, binary.LittleEndian, uint64(len(obj))); err != nil {
			return err
		}
		if _, err := os.Stdout.Write(obj); err != nil {
			return err
		}
	}
	return nil
}

// readObject takes the next object from the pipe.
func (x *Text) readObject() (embedding.Meta, []byte, error) {
	var n uint64
	if err := binary.Read(os.Stdin, binary.LittleEndian, &n); err != nil {
		return embedding.Meta{}, nil, err
	}
	obj := make([]byte, n)
	if _, err := io.ReadFull(os.Stdin, obj); err != nil {
		return embedding.Meta{}, nil, err
	}
	contract := embedding.Contract{Cols: x.Spec().Cols, DType: x.Spec().DType, MaxRows: x.Spec().Context}
	return embedding.A1.Open(obj, splitKey, contract)
}

// textSide reads objects and answers the prompt with each in the place of the picture.
func textSide(lib *Library, text, _ string) error {
	x, err := NewText(lib, TextConfig{Model: text, ContextTokens: sideContext(), GPULayers: -1})
	if err != nil {
		return err
	}
	defer x.Close()
	step := 100
	if lib.onGPU() {
		step = 1 << 20 // where the sums hang on how a prompt is cut, it is cut as the whole is
	}
	sched := batch.New(x.Runner(), batch.Config{StepTokens: step})
	defer sched.Close()
	var out []result
	for range sideSizes() {
		meta, payload, err := x.readObject()
		if err != nil {
			return err
		}
		r, err := answer(x, sched, meta, payload)
		if err != nil {
			return err
		}
		out = append(out, r)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	if strings.Contains(string(maps), libMtmd) {
		return fmt.Errorf("the text side has mapped %s", libMtmd)
	}
	return gob.NewEncoder(os.Stdout).Encode(out)
}

// prompt is what the text side asks, with one object in the place of the picture.
func (x *Text) prompt(meta embedding.Meta, payload []byte) ([]batch.Part, error) {
	before, err := x.Tokenize(promptBefore, true)
	if err != nil {
		return nil, err
	}
	after, err := x.Tokenize(promptAfter, true)
	return []batch.Part{{Tokens: before}, {Layout: meta.Layout, Data: payload}, {Tokens: after}}, err
}

// answer has a scheduler answer the prompt with one object.
func answer(x *Text, sched *batch.Scheduler, meta embedding.Meta, payload []byte) (r result, err error) {
	parts, err := x.prompt(meta, payload)
	if err != nil {
		return r, err
	}
	err = sched.Ask(context.Background(), parts, r.next)
	return r, err
}

// next picks greedily until there are as many tokens as are compared.
func (r *result) next(l []float32) (int32, bool, error) {
	tok := r.take(l)
	return tok, len(r.Tokens) < sideTokens(), nil
}
