// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/model"
)

// tokens returns n ordinary tokens.
func tokens(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(33 + i*7%90)
	}
	return out
}

// rowsOf returns n finite rows of 64 columns.
func rowsOf(n int) []byte {
	out := make([]byte, 0, n*64*4)
	for i := range n * 64 {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(i%17)/17-0.5))
	}
	return out
}

func rowPart(n int) embedding.Part { return embedding.Part{Rows: n, Positions: n} }

func prefill(t *testing.T, s *Sequence, toks []int32, logits bool) {
	t.Helper()
	if err := s.PrefillTokens(t.Context(), toks, logits); err != nil {
		t.Fatal(err)
	}
}

// bits returns the logits of s, which only live until the next call.
func bits(s *Sequence) []uint32 {
	out := make([]uint32, len(s.Logits()))
	for i, v := range s.Logits() {
		out[i] = math.Float32bits(v)
	}
	return out
}

// However the caller cuts its text, the logits have the same bits.
func TestCutsDoNotMatter(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1})
	before, after := tokens(700), tokens(530)
	run := func(cuts ...int) []uint32 {
		t.Helper()
		s, err := x.NewSequence(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		seq := s.(*Sequence)
		feed := func(toks []int32, logits bool) {
			for i, c := range cuts {
				if c < len(toks) {
					from := 0
					if i > 0 {
						from = cuts[i-1]
					}
					prefill(t, seq, toks[from:c], false)
				}
			}
			last := 0
			for _, c := range cuts {
				if c < len(toks) {
					last = c
				}
			}
			prefill(t, seq, toks[last:], logits)
		}
		feed(before, false)
		if err := seq.PrefillRows(t.Context(), rowPart(600), rowsOf(600)); err != nil {
			t.Fatal(err)
		}
		feed(after, true)
		if want := len(before) + 600 + len(after); seq.Len() != want {
			t.Errorf("cuts %v: length is %d, want %d", cuts, seq.Len(), want)
		}
		return bits(seq)
	}
	want := run()
	for _, cuts := range [][]int{{1}, {2, 3, 4}, {511}, {512}, {513, 529}, {1, 100, 512, 699}} {
		if !slices.Equal(run(cuts...), want) {
			t.Errorf("cuts at %v change the logits", cuts)
		}
	}
}

// Sequences of one model run side by side and do not see each other; a closed one leaves nothing.
func TestSequencesAreApart(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 3})
	run := func(first int32) ([]uint32, error) {
		s, err := x.NewSequence(t.Context())
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := s.PrefillTokens(t.Context(), append([]int32{first}, tokens(60)...), true); err != nil {
			return nil, err
		}
		return bits(s.(*Sequence)), nil
	}
	want := map[int32][]uint32{}
	for first := range int32(4) {
		got, err := run(first)
		if err != nil {
			t.Fatal(err)
		}
		want[first] = got
	}
	if slices.Equal(want[0], want[1]) {
		t.Fatal("the first token makes no difference")
	}
	var wg sync.WaitGroup
	for first := range want {
		wg.Go(func() {
			for range 5 {
				got, err := run(first)
				if err != nil {
					t.Error(err)
				} else if !slices.Equal(got, want[first]) {
					t.Errorf("token %d: other logits than alone", first)
				}
			}
		})
	}
	wg.Wait()
}

func TestRowsAreRefused(t *testing.T) {
	plain := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1, BatchTokens: 64})
	s := newSequence(t, plain)
	f := func(s *Sequence, part embedding.Part, rows []byte, parts ...string) {
		t.Helper()
		err := s.PrefillRows(t.Context(), part, rows)
		wantError(t, err, parts...)
		if !errors.Is(err, engine.ErrBadRows) {
			t.Errorf("error %v is not ErrBadRows", err)
		}
		if s.Len() != 0 {
			t.Errorf("refused rows took %d positions", s.Len())
		}
	}
	good := rowsOf(4)
	f(s, rowPart(4), good[:len(good)-4], "1020 bytes", "4 rows of 64 float32 (1024 bytes)")
	f(s, rowPart(4), append(slices.Clone(good), 0, 0, 0, 0), "1028 bytes")
	f(s, rowPart(5), good, "5 rows")
	f(s, rowPart(2), make([]byte, 2*128*4), "2 rows of 64") // a model of another width
	f(s, embedding.Part{Tokens: []int32{1}}, nil, "not a row part")
	f(s, embedding.Part{Rows: -1, Positions: -1}, nil, "not a row part")
	f(s, embedding.Part{Rows: 4, Positions: 2}, good, "4 rows move the position by 2")
	f(s, embedding.Part{Rows: 4, Positions: 0}, good, "position by 0")
	f(s, embedding.Part{Rows: 4, Positions: 4, MRoPE: make([]embedding.MRoPE, 4)}, good, "multi-dimensional")
	f(s, embedding.Part{Rows: 65, Positions: 65, NonCausal: true}, rowsOf(65), "65 rows", "one batch of 64")
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		bad := slices.Clone(good)
		binary.LittleEndian.PutUint32(bad[4*200:], math.Float32bits(float32(v)))
		f(s, rowPart(4), bad, "element 200")
		if err := s.PrefillRows(t.Context(), rowPart(4), bad); !errors.Is(err, embedding.ErrNotFinite) {
			t.Errorf("error %v is not ErrNotFinite", err)
		}
	}

	mrope := newText(t, TextConfig{Model: randomPair(t, model.Qwen2VL).text, Slots: 1})
	m := newSequence(t, mrope)
	f(m, rowPart(4), good, "0 multi-dimensional positions for 4 rows")
	f(m, embedding.Part{Rows: 4, Positions: 2, MRoPE: []embedding.MRoPE{{}, {}, {}, {X: 1 << 31}}}, good, "row 3", "beyond the context")

	// A refusal costs nothing: the sequence takes good rows, at any address, and goes on.
	odd := append(make([]byte, 1), good...)[1:]
	for _, rows := range [][]byte{good, odd} {
		if err := s.PrefillRows(t.Context(), rowPart(4), rows); err != nil {
			t.Error(err)
		}
	}
	prefill(t, s, tokens(3), true)
	if s.Len() != 11 || len(s.Logits()) != plain.Spec().Vocab {
		t.Errorf("length %d with %d logits, want 11 with %d", s.Len(), len(s.Logits()), plain.Spec().Vocab)
	}
}

func TestTokensAreRefused(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1})
	s := newSequence(t, x)
	for _, tok := range []int32{-1, int32(x.Spec().Vocab), math.MaxInt32, math.MinInt32} {
		wantError(t, s.PrefillTokens(t.Context(), []int32{65, tok}, true), "index 1", "vocabulary of 266")
		if p := x.Piece(tok); p != nil {
			t.Errorf("token %d has piece %q", tok, p)
		}
		if !x.EndOfGeneration(tok) {
			t.Errorf("token %d does not end an answer", tok)
		}
	}
	wantError(t, s.PrefillTokens(t.Context(), nil, true), "at least one token")
	prefill(t, s, tokens(2), false)
	if s.Logits() != nil {
		t.Error("logits that nobody asked for")
	}
	prefill(t, s, nil, true)
	if s.Logits() == nil || s.Len() != 2 {
		t.Errorf("%d logits after %d positions", len(s.Logits()), s.Len())
	}
}

func TestContextFull(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.Qwen2VL).text, Slots: 1, ContextTokens: 100, BatchTokens: 30})
	s := newSequence(t, x)
	full := func(err error, parts ...string) {
		t.Helper()
		wantError(t, err, parts...)
		if !errors.Is(err, engine.ErrContextFull) {
			t.Errorf("error %v is not ErrContextFull", err)
		}
	}
	full(s.PrefillTokens(t.Context(), tokens(101), true), "0 of 100", "101 more")
	prefill(t, s, tokens(40), false)
	// 60 rows in a grid move the position by 10 but fill 60 cells.
	part := embedding.Part{Rows: 60, Positions: 10, MRoPE: make([]embedding.MRoPE, 60)}
	for i := range part.MRoPE {
		part.MRoPE[i] = embedding.MRoPE{Y: uint32(i / 10), X: uint32(i % 10)}
	}
	if err := s.PrefillRows(t.Context(), part, rowsOf(60)); err != nil {
		t.Fatal(err)
	}
	if s.Len() != 50 {
		t.Errorf("length is %d, want 50", s.Len())
	}
	full(s.PrefillTokens(t.Context(), tokens(1), true), "100 of 100")
	full(s.PrefillRows(t.Context(), part, rowsOf(60)), "100 of 100", "60 more")
}

// A cancelled prefill stops between two batches and spoils the sequence, not its successor.
func TestPrefillHonoursContext(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1})
	s := newSequence(t, x)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.PrefillTokens(done, tokens(3), true); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	prefill(t, s, tokens(3), true) // nothing had begun
	want := bits(s)

	if err := s.PrefillTokens(&doneAfter{Context: t.Context(), looks: 2}, tokens(2000), true); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if s.pos != 3+defaultBatch {
		t.Errorf("stopped after %d positions, want one batch after the first 3", s.pos)
	}
	if err := s.PrefillTokens(t.Context(), tokens(1), true); !errors.Is(err, context.Canceled) {
		t.Errorf("a spoilt sequence answers %v, want the first failure", err)
	}
	s.Close()
	next := newSequence(t, x)
	prefill(t, next, tokens(3), true)
	if !slices.Equal(bits(next), want) {
		t.Error("the next sequence sees what the spoilt one left")
	}
}

// doneAfter is a context that is cancelled from its third look on.
type doneAfter struct {
	context.Context
	looks int
}

func (d *doneAfter) Err() error {
	if d.looks--; d.looks < 0 {
		return context.Canceled
	}
	return nil
}

func TestNewSequenceWaits(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1})
	first := newSequence(t, x)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() { _, err := x.NewSequence(ctx); got <- err }()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	go func() {
		s, err := x.NewSequence(t.Context())
		if err == nil {
			s.Close()
		}
		got <- err
	}()
	first.Close()
	first.Close() // the slot must not come back twice
	if err := <-got; err != nil {
		t.Error(err)
	}
	wantError(t, first.PrefillTokens(t.Context(), tokens(1), true), "closed")
	wantError(t, first.PrefillRows(t.Context(), rowPart(1), rowsOf(1)), "closed")
}

func TestCloseWithOpenSequence(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 2})
	s := newSequence(t, x)
	for range 2 {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	prefill(t, s, tokens(3), true) // the model lives until its last sequence is closed
	if _, err := x.NewSequence(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if _, err := x.Tokenize("a", false); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	s.Close()
}

func TestTextConfigIsChecked(t *testing.T) {
	text := randomPair(t, model.MLP).text
	f := func(cfg TextConfig, parts ...string) {
		t.Helper()
		cfg.Model = text
		_, err := NewText(library(t), cfg)
		wantError(t, err, parts...)
	}
	f(TextConfig{Slots: -1}, "-1 slots")
	f(TextConfig{Threads: 1000}, "1000 threads")
	f(TextConfig{ContextTokens: 1 << 30}, "context tokens")
	f(TextConfig{BatchTokens: -5}, "-5 batch tokens")
	spec := newText(t, TextConfig{Model: text}).Spec()
	if spec.Context != defaultContext || spec.Vocab != 266 || spec.Cols != 64 || !strings.Contains(spec.Model, "random") {
		t.Errorf("spec is %+v", spec)
	}
}
