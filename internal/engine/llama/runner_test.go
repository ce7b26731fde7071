// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
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

// seq is one sequence of a Runner and its length.
type seq struct {
	run engine.Runner
	id  int
	pos int
}

// newSequence returns the first sequence of x, empty.
func newSequence(x *Text) *seq {
	x.Runner().Truncate(0, 0, 0)
	return &seq{run: x.Runner()}
}

func (s *seq) tokens(toks []int32, logits bool) error {
	err := s.run.PrefillTokens(s.id, s.pos, toks, logits)
	if err == nil {
		s.pos += len(toks)
	}
	return err
}

// rows appends a whole part in calls of at most n.
func (s *seq) rows(part embedding.Part, rows []byte, n int) error {
	width := len(rows) / max(part.Rows, 1)
	for at := 0; at < part.Rows; at += n {
		n := min(n, part.Rows-at)
		if err := s.run.PrefillRows(s.id, s.pos, part, at, n, rows[at*width:(at+n)*width]); err != nil {
			return err
		}
	}
	s.pos += part.Positions
	return nil
}

func prefill(t *testing.T, s *seq, toks []int32, logits bool) {
	t.Helper()
	if err := s.tokens(toks, logits); err != nil {
		t.Fatal(err)
	}
}

// bits returns the logits of the last call, which only live until the next one.
func bits(s *seq) []uint32 {
	out := make([]uint32, len(s.run.Logits(0)))
	for i, v := range s.run.Logits(0) {
		out[i] = math.Float32bits(v)
	}
	return out
}

// However a prompt is cut into calls of at least two, the logits have the same bits.
func TestCutsDoNotMatter(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 3})
	before, after := tokens(700), tokens(530)
	run := func(n int) []uint32 {
		t.Helper()
		s := newSequence(x)
		feed := func(toks []int32, logits bool) {
			for len(toks) > 0 {
				n := min(n, len(toks))
				if len(toks)-n == 1 {
					n--
				}
				prefill(t, s, toks[:n], logits && n == len(toks))
				toks = toks[n:]
			}
		}
		feed(before, false)
		if err := s.rows(rowPart(600), rowsOf(600), n); err != nil {
			t.Fatal(err)
		}
		feed(after, true)
		return bits(s)
	}
	want := run(512)
	for _, n := range []int{3, 16, 100, 511} {
		if !slices.Equal(run(n), want) {
			t.Errorf("calls of %d change the logits", n)
		}
	}
}

// Sequences do not see each other; one that is emptied leaves nothing; a copy goes on like its original,
// and so does one that is cut back.
func TestSequencesAreApart(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 3})
	prompt := func(first int32) []int32 { return append([]int32{first}, tokens(60)...) }
	want := map[int][]uint32{}
	for first := range 3 {
		s := newSequence(x)
		prefill(t, s, prompt(int32(first)), true)
		want[first] = bits(s)
	}
	if slices.Equal(want[0], want[1]) {
		t.Fatal("the first token makes no difference")
	}
	check := func(what string, s *seq, toks []int32, first int) {
		t.Helper()
		prefill(t, s, toks, true)
		if !slices.Equal(bits(s), want[first]) {
			t.Errorf("%s: other logits than alone", what)
		}
	}
	all := make([]*seq, 3)
	for i := range all {
		all[i] = &seq{run: x.Runner(), id: i}
		all[i].run.Truncate(i, 0, 0)
		check("side by side", all[i], prompt(int32(i)), i)
	}
	x.Runner().Copy(1, 0)
	x.Runner().Truncate(1, 40, 40)
	all[1].pos = 40
	check("a copy, cut back", all[1], prompt(0)[40:], 0)
	x.Runner().Truncate(0, 20, 20)
	all[0].pos = 20
	check("the original, cut back", all[0], prompt(0)[20:], 0)
	x.Runner().Truncate(2, 0, 0)
	all[2].pos = 0
	check("emptied", all[2], prompt(1), 1)
}

func TestRowsAreRefused(t *testing.T) {
	plain := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1, BatchTokens: 64})
	s := newSequence(plain)
	f := func(s *seq, part embedding.Part, first, n int, rows []byte, parts ...string) {
		t.Helper()
		err := s.run.PrefillRows(0, 0, part, first, n, rows)
		wantError(t, err, parts...)
		if !errors.Is(err, engine.ErrBadRows) {
			t.Errorf("error %v is not ErrBadRows", err)
		}
	}
	good := rowsOf(4)
	f(s, rowPart(4), 0, 4, good[:len(good)-4], "1020 bytes", "4 rows of 64 float32 (1024 bytes)")
	f(s, rowPart(4), 0, 4, append(slices.Clone(good), 0, 0, 0, 0), "1028 bytes")
	f(s, rowPart(5), 0, 5, good, "5 rows")
	f(s, rowPart(4), 1, 4, good, "rows 1 to 5 of 4")
	f(s, rowPart(4), -1, 4, good, "rows -1 to 3")
	f(s, rowPart(65), 0, 65, rowsOf(65), "at most 64")
	f(s, rowPart(2), 0, 2, make([]byte, 2*128*4), "2 rows of 64") // a model of another width
	f(s, embedding.Part{Tokens: []int32{1}}, 0, 1, nil, "not a row part")
	f(s, embedding.Part{Rows: -1, Positions: -1}, 0, 1, nil, "not a row part")
	f(s, embedding.Part{Rows: 4, Positions: 2}, 0, 4, good, "4 rows move the position by 2")
	f(s, embedding.Part{Rows: 4, Positions: 0}, 0, 4, good, "position by 0")
	f(s, embedding.Part{Rows: 4, Positions: 4, MRoPE: make([]embedding.MRoPE, 4)}, 0, 4, good, "multi-dimensional")
	f(s, embedding.Part{Rows: 8, Positions: 8, NonCausal: true}, 0, 4, good, "4 of 8 rows", "one call")
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		bad := slices.Clone(good)
		binary.LittleEndian.PutUint32(bad[4*200:], math.Float32bits(float32(v)))
		f(s, rowPart(4), 0, 4, bad, "element 200")
		if err := s.run.PrefillRows(0, 0, rowPart(4), 0, 4, bad); !errors.Is(err, embedding.ErrNotFinite) {
			t.Errorf("error %v is not ErrNotFinite", err)
		}
	}

	mrope := newText(t, TextConfig{Model: randomPair(t, model.Qwen2VL).text, Slots: 1})
	m := newSequence(mrope)
	f(m, rowPart(4), 0, 4, good, "0 multi-dimensional positions for 4 rows")
	f(m, embedding.Part{Rows: 4, Positions: 2, MRoPE: []embedding.MRoPE{{}, {}, {}, {X: 1 << 31}}}, 0, 4, good, "row 3", "beyond the context")

	// A refusal costs nothing: the sequence takes good rows, at any address, and goes on.
	odd := append(make([]byte, 1), good...)[1:]
	for _, rows := range [][]byte{good, odd} {
		if err := s.rows(rowPart(4), rows, 4); err != nil {
			t.Error(err)
		}
	}
	prefill(t, s, tokens(3), true)
	if got := len(s.run.Logits(0)); got != plain.Spec().Vocab {
		t.Errorf("%d logits, want %d", got, plain.Spec().Vocab)
	}
}

func TestTokensAreRefused(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1})
	s := newSequence(x)
	for _, tok := range []int32{-1, int32(x.Spec().Vocab), math.MaxInt32, math.MinInt32} {
		wantError(t, s.tokens([]int32{65, tok}, true), "index 1", "vocabulary of 266")
		wantError(t, s.run.Decode([]engine.Next{{Token: tok}}), "vocabulary of 266")
		if p := x.Piece(tok); p != nil {
			t.Errorf("token %d has piece %q", tok, p)
		}
		if !x.EndOfGeneration(tok) {
			t.Errorf("token %d does not end an answer", tok)
		}
	}
	wantError(t, s.tokens(nil, true), "at least one token")
	wantError(t, s.run.PrefillTokens(1, 0, tokens(2), true), "sequence 1 of 1")
	wantError(t, s.tokens(tokens(defaultBatch+1), true), "513", "512")
	prefill(t, s, tokens(2), false)
	if s.run.Logits(0) != nil {
		t.Error("logits that nobody asked for")
	}
	prefill(t, s, tokens(2), true)
	if s.run.Logits(0) == nil || s.run.Logits(1) != nil {
		t.Error("logits of one entry are not there, or those of another are")
	}
}

func TestContextFull(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.Qwen2VL).text, Slots: 2, ContextTokens: 100, BatchTokens: 60})
	s := newSequence(x)
	full := func(err error, parts ...string) {
		t.Helper()
		wantError(t, err, parts...)
		if !errors.Is(err, engine.ErrContextFull) {
			t.Errorf("error %v is not ErrContextFull", err)
		}
	}
	prefill(t, s, tokens(40), false)
	// 60 rows in a grid move the position by 10 but fill 60 cells.
	part := embedding.Part{Rows: 60, Positions: 10, MRoPE: make([]embedding.MRoPE, 60)}
	for i := range part.MRoPE {
		part.MRoPE[i] = embedding.MRoPE{Y: uint32(i / 10), X: uint32(i % 10)}
	}
	if err := s.rows(part, rowsOf(60), 60); err != nil {
		t.Fatal(err)
	}
	if s.pos != 50 {
		t.Errorf("length is %d, want 50", s.pos)
	}
	full(s.tokens(tokens(1), true), "100 of 100")
	full(s.run.Decode([]engine.Next{{Pos: 50, Token: 65}}), "100 of 100")
	full(s.rows(part, rowsOf(60), 60), "100 of 100", "60 more")
	s.run.Truncate(0, 40, 40)
	s.pos = 40
	prefill(t, s, tokens(60), true)
	full(s.tokens(tokens(1), true), "100 of 100")
}

func TestClose(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 2})
	s := newSequence(x)
	prefill(t, s, tokens(3), true)
	for range 2 {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, err := range map[string]error{
		"tokens": s.tokens(tokens(1), true),
		"rows":   s.rows(rowPart(1), rowsOf(1), 1),
		"decode": s.run.Decode([]engine.Next{{Token: 65}}),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", name, err)
		}
	}
	s.run.Truncate(0, 0, 0)
	s.run.Copy(1, 0)
	if _, err := x.Tokenize("a", false); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
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
