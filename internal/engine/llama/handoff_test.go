// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"afterimage/internal/batch"
	"afterimage/internal/engine"
	"afterimage/internal/model"
)

func init() {
	sides["prefill"] = prefillSide
	sides["decode"] = decodeSide
}

// TestThreeWaySplitEqualsWhole runs every projector on every picture in one process, and as three that share
// nothing but embedding objects and states in pipes. Tokens and logits must agree to the bit.
func TestThreeWaySplitEqualsWhole(t *testing.T) {
	equal := 0
	for _, projector := range model.Projectors() {
		p := randomPair(t, projector)
		var want, got []result
		decode(t, side(t, "whole", p.text, p.projector), &want)
		enc, pre, dec := side(t, "encode", p.text, p.projector), side(t, "prefill", p.text, ""), side(t, "decode", p.text, "")
		pipe(t, enc, pre)
		pipe(t, pre, dec)
		decode(t, dec, &got)
		if err := errors.Join(enc.Wait(), pre.Wait()); err != nil {
			t.Fatalf("%s: %v\n%s\n%s", projector, err, enc.Stderr, pre.Stderr)
		}
		if len(got) != len(splitSizes) {
			t.Fatalf("%s: %d results, want %d", projector, len(got), len(splitSizes))
		}
		for i, s := range splitSizes {
			if !slices.Equal(got[i].Tokens, want[i].Tokens) || !slices.EqualFunc(got[i].Logits, want[i].Logits, slices.Equal[[]uint32]) {
				t.Errorf("%s, %dx%d: three ways give tokens %v, whole %v; logits differ from step %d on",
					projector, s.width, s.height, got[i].Tokens, want[i].Tokens, firstDifference(got[i], want[i]))
				continue
			}
			equal++
		}
	}
	if want := len(model.Projectors()) * len(splitSizes); equal != want {
		t.Errorf("%d of %d equal", equal, want)
	}
}

// handed is a computed prompt on its way.
type handed struct {
	Cells, Positions int
	Logits           []float32
	Data             []byte
}

// compute has a scheduler compute a prompt, and returns what another one goes on from.
func compute(sched *batch.Scheduler, most func(int) (int, error), parts []batch.Part) (out handed, err error) {
	r := batch.Request{HandOff: func(c batch.Computed) error {
		room, err := most(c.Cells)
		if err != nil {
			return err
		}
		out = handed{c.Cells, c.Positions, slices.Clone(c.Logits), make([]byte, room)}
		n, err := c.Save(out.Data)
		out.Data = out.Data[:n]
		return err
	}}
	return out, sched.AskFor(context.Background(), r, parts)
}

// prefillSide reads objects and writes the states of the prompts with them.
func prefillSide(lib *Library, text, _ string) error {
	x, err := NewText(lib, TextConfig{Model: text, ContextTokens: sideContext(), GPULayers: -1})
	if err != nil {
		return err
	}
	defer x.Close()
	if _, err := x.runner.StateBytes(1); err != nil {
		return err
	}
	sched := batch.New(x.Runner(), batch.Config{StepTokens: 100})
	defer sched.Close()
	out := gob.NewEncoder(os.Stdout)
	for range sideSizes() {
		meta, payload, err := x.readObject()
		if err != nil {
			return err
		}
		parts, err := x.prompt(meta, payload)
		if err != nil {
			return err
		}
		st, err := compute(sched, x.runner.StateBytes, parts)
		if err != nil {
			return err
		}
		if err := out.Encode(st); err != nil {
			return err
		}
	}
	return nil
}

// decodeSide reads states and answers from there.
func decodeSide(lib *Library, text, _ string) error {
	x, err := NewText(lib, TextConfig{Model: text, ContextTokens: sideContext(), GPULayers: -1})
	if err != nil {
		return err
	}
	defer x.Close()
	sched := batch.New(x.Runner(), batch.Config{})
	defer sched.Close()
	var out []result
	in := gob.NewDecoder(os.Stdin)
	for {
		var st handed
		if err := in.Decode(&st); errors.Is(err, io.EOF) {
			return gob.NewEncoder(os.Stdout).Encode(out)
		} else if err != nil {
			return err
		}
		var r result
		err := sched.AskFor(context.Background(), batch.Request{
			Next: r.next, Cells: st.Cells,
			State: &batch.State{Cells: st.Cells, Positions: st.Positions, Logits: st.Logits, Data: st.Data},
		}, nil)
		if err != nil {
			return err
		}
		out = append(out, r)
	}
}

// TestRestoreRefusesBadStates: native code reads a state from a bare address and a length.
func TestRestoreRefusesBadStates(t *testing.T) {
	dir := t.TempDir()
	if err := model.WriteRandom(dir, model.RandomOptions{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	x := newText(t, TextConfig{Model: dir + "/" + model.TextFile, ContextTokens: 64})
	r := x.runner
	most, err := r.StateBytes(7)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.PrefillTokens(0, 0, []int32{1, 2, 3, 4, 5, 6, 7}, false); err != nil {
		t.Fatal(err)
	}
	state := make([]byte, most)
	n, err := r.Save(0, state)
	if err != nil || n != most {
		t.Fatalf("Save: %d, %v; want the %d bytes that StateBytes says", n, err, most)
	}
	if _, err := r.Save(0, state[:n-1]); err == nil {
		t.Error("a state was saved in less room than it takes")
	}
	f := func(what string, pos, cells int, state []byte, want error) {
		t.Helper()
		if err := r.Restore(1, pos, cells, state); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
		if last := r.slot.last(1); last != -1 || r.taken[1] != 0 {
			t.Errorf("%s: the sequence ends at %d and has %d cells, want none", what, last, r.taken[1])
		}
	}
	f("empty", 7, 7, nil, engine.ErrBadState)
	f("cut", 7, 7, state[:n/2], engine.ErrBadState)
	f("junk", 7, 7, make([]byte, n), engine.ErrBadState)
	f("longer", 7, 7, append(slices.Clone(state), 0), engine.ErrBadState)
	f("another position", 8, 8, state, engine.ErrBadState)
	f("too long for the context", 65, 65, state, engine.ErrContextFull)
	if err := r.Restore(1, 7, 7, state); err != nil {
		t.Error(err)
	}
	if err := r.PrefillTokens(1, 7, []int32{8, 9}, true); err != nil {
		t.Error(err)
	}
}
