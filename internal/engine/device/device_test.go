// SPDX-License-Identifier: Apache-2.0

package device

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/media"
)

func picture(w, h int, v byte) media.Pixels {
	return media.Pixels{Width: w, Height: h, RGB: bytes.Repeat([]byte{v}, w*h*3)}
}

// TestDeadlinesAreAbsolute gives the device eight pictures at once: the last is done after exactly
// eight times the time of one, which a sum of sleeps would exceed.
func TestDeadlinesAreAbsolute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultEncoderConfig()
		e, err := NewEncoder(cfg)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				dst := make([]byte, cfg.Rows*cfg.Cols*2)
				if err := e.Encode(t.Context(), picture(4, 4, byte(i)), dst); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got, want := time.Since(start), 8*cfg.EncodeTime; got != want {
			t.Errorf("8 pictures took %v, want %v", got, want)
		}
	})
}

func TestEncodeIsSeededAndFinite(t *testing.T) {
	for _, d := range []embedding.DType{embedding.Float32, embedding.Float16, embedding.BFloat16} {
		e, err := NewEncoder(EncoderConfig{Model: "m", Seed: 3, Cols: 7, DType: d})
		if err != nil {
			t.Fatal(err)
		}
		encode := func(px media.Pixels) []byte {
			l, err := e.Layout(t.Context(), px.Width, px.Height)
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, l.Rows()*7*d.Bytes())
			if err := e.Encode(t.Context(), px, dst); err != nil {
				t.Fatal(err)
			}
			return dst
		}
		a, b, c := encode(picture(60, 30, 1)), encode(picture(60, 30, 1)), encode(picture(60, 30, 2))
		if !bytes.Equal(a, b) || bytes.Equal(a, c) {
			t.Errorf("%v: equal pictures must be equal, others not", d)
		}
		if turned := encode(picture(30, 60, 1)); bytes.Equal(a, turned) {
			t.Errorf("%v: a turned picture of the same bytes is another picture", d)
		}
		if err := embedding.CheckFinite(a, d); err != nil {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// answer feeds one image and some text and reads the likeliest tokens.
func answer(t *testing.T, m *Text, rows []byte) string {
	t.Helper()
	run, pos := m.Runner(), 0
	run.Truncate(0, 0, 0)
	check := func(n int, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		pos += n
	}
	toks, _ := m.Tokenize("<|im_start|>user\n", true)
	check(len(toks), run.PrefillTokens(0, pos, toks, false))
	n := len(rows) / 8
	part := embedding.Part{Rows: n, Positions: n}
	half := n / 2 // how rows are cut makes no difference
	if err := run.PrefillRows(0, pos, part, 0, half, rows[:half*8]); err != nil {
		t.Fatal(err)
	}
	check(n, run.PrefillRows(0, pos, part, half, n-half, rows[half*8:]))
	check(2, run.PrefillTokens(0, pos, []int32{'x', endToken}, true))
	var out []byte
	sampler, err := engine.NewSampler(engine.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		tok, err := sampler.Pick(run.Logits(0))
		if err != nil {
			t.Fatal(err)
		}
		if m.EndOfGeneration(tok) {
			return string(out)
		}
		out = append(out, m.Piece(tok)...)
		check(1, run.Decode([]engine.Next{{Pos: pos, Token: tok}}))
	}
}

func TestAnswerDependsOnRows(t *testing.T) {
	m, err := NewText(TextConfig{Model: "m", Cols: 2, DType: embedding.Float32, Context: 256, Slots: 1, AnswerLen: 16})
	if err != nil {
		t.Fatal(err)
	}
	a, b := answer(t, m, make([]byte, 32)), answer(t, m, make([]byte, 32))
	rows := make([]byte, 32)
	rows[31] = 1
	c := answer(t, m, rows)
	if a != b || a == c || len(a) != 16 {
		t.Errorf("answers %q, %q, %q: equal input must give equal text, one bit must change it", a, b, c)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	m, err := NewText(TextConfig{Model: "m", Cols: 2, DType: embedding.Float32, Context: 4, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	run := m.Runner()
	nan := make([]byte, 8)
	copy(nan, []byte{0, 0, 0xc0, 0x7f})
	if v := math.Float32frombits(0x7fc00000); !math.IsNaN(float64(v)) {
		t.Fatal("the test's NaN is none")
	}
	for name, err := range map[string]error{
		"short": run.PrefillRows(0, 0, embedding.Part{Rows: 2}, 0, 2, make([]byte, 8)),
		"nan":   run.PrefillRows(0, 0, embedding.Part{Rows: 1}, 0, 1, nan),
	} {
		if !errors.Is(err, engine.ErrBadRows) {
			t.Errorf("%s: %v, want ErrBadRows", name, err)
		}
	}
	if err := run.PrefillTokens(0, 0, make([]int32, 5), false); !errors.Is(err, engine.ErrContextFull) {
		t.Errorf("5 tokens in a context of 4: %v", err)
	}
	if err := run.PrefillTokens(0, 1, make([]int32, 1), false); err == nil {
		t.Error("a token was put behind one that is not there")
	}
	if err := run.Decode([]engine.Next{{Token: vocab}}); err == nil {
		t.Error("a token outside of the vocabulary was taken")
	}
}

// TestDecodeStepsAreShared prefills three whole prompts and decodes them together: each step serves all.
func TestDecodeStepsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := TextConfig{Model: "m", Cols: 2, DType: embedding.Float32, Context: 4096, Slots: 4, Whole: true,
			PrefillTime: time.Millisecond, DecodeTime: 20 * time.Millisecond}
		m, err := NewText(cfg)
		if err != nil {
			t.Fatal(err)
		}
		const prompt, steps = 100, 10
		run, start := m.Runner(), time.Now()
		var next []engine.Next
		for seq := range 3 {
			begun := time.Now()
			if err := run.PrefillRows(seq, 0, embedding.Part{Rows: prompt - 2, Positions: prompt - 2}, 0, prompt-2, make([]byte, (prompt-2)*8)); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begun); got != 0 {
				t.Errorf("rows of a whole prompt took %v before its end", got)
			}
			if err := run.PrefillTokens(seq, prompt-2, []int32{'a', 'b'}, true); err != nil {
				t.Fatal(err)
			}
			next = append(next, engine.Next{Seq: seq, Pos: prompt, Token: 'x'})
		}
		for range steps {
			if err := run.Decode(next); err != nil {
				t.Fatal(err)
			}
			for i := range next {
				next[i].Pos++
			}
		}
		if got, want := time.Since(start), 3*prompt*cfg.PrefillTime+steps*cfg.DecodeTime; got != want {
			t.Errorf("three prompts and %d steps took %v, want %v", steps, got, want)
		}
	})
}

// TestSequencesAreCopiedAndCut continues a copy and a shortened sequence as the first one went on.
func TestSequencesAreCopiedAndCut(t *testing.T) {
	m, err := NewText(TextConfig{Model: "m", Cols: 2, DType: embedding.Float32, Context: 64, Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	run := m.Runner()
	best := func() int32 {
		l := run.Logits(0)
		return int32(slices.Index(l, slices.Max(l)))
	}
	if err := run.PrefillTokens(0, 0, []int32{'a', 'b', 'c', 'd'}, true); err != nil {
		t.Fatal(err)
	}
	want := best()
	run.Copy(1, 0)
	run.Truncate(1, 2, 2)
	for seq, from := range []int{0, 2} {
		run.Truncate(seq, from, from)
		if err := run.PrefillTokens(seq, from, []int32{'a', 'b', 'c', 'd'}[from:], true); err != nil {
			t.Fatal(err)
		}
		if got := best(); got != want {
			t.Errorf("sequence %d from %d on: %d, want %d", seq, from, got, want)
		}
	}
}

// TestClockIsSharedByPath gives one device work through two Clocks.
func TestClockIsSharedByPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	var ends [2]int64
	for i := range ends {
		c, err := NewClock(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if ends[i], err = c.Give(time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if d := ends[1] - ends[0]; d != int64(time.Hour) {
		t.Errorf("the second piece of work ends %v after the first, want an hour", time.Duration(d))
	}
	if _, err := NewClock(t.TempDir()); err == nil {
		t.Error("a folder was taken for a clock")
	}
}

func TestProfile(t *testing.T) {
	p, err := ParseProfile("encode=50ms, host=15ms,whole=true,scale=2.5,slots=3")
	if err != nil {
		t.Fatal(err)
	}
	if e := p.Encoder(); e.EncodeTime != 20*time.Millisecond || e.HostTime != 6*time.Millisecond || e.Rows != 256 {
		t.Errorf("encoder %+v", e)
	}
	if x := p.Text(); x.DecodeTime != 7680*time.Microsecond || !x.Whole || x.Slots != 3 {
		t.Errorf("text %+v", x)
	}
	if again, err := ParseProfile(p.String()); err != nil || again != p {
		t.Errorf("%q reads back as %+v, %v", p, again, err)
	}
	for _, bad := range []string{"encode", "encode=-1s", "encode=2h", "slots=0", "rows=-1", "whole=2", "scale=0.5", "scale=NaN", "what=1", "encode 1"} {
		if _, err := ParseProfile(bad); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(bad)) {
			t.Errorf("%q: error %v, want one that quotes it", bad, err)
		}
	}
}

// TestLateWakeUpsCostNothing encodes pictures one after the other and comes a little late for each: the last ends
// as if none had been late. Who comes after a pause has not waited, and gets nothing back.
func TestLateWakeUpsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultEncoderConfig()
		cfg.EncodeTime, cfg.HostTime = 100*time.Millisecond, 5*time.Millisecond
		e, err := NewEncoder(cfg)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, cfg.Rows*cfg.Cols*2)
		encode := func(i byte) {
			if err := e.Encode(t.Context(), picture(4, 4, i), dst); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		for i := range byte(5) {
			encode(i)
			if i < 4 {
				time.Sleep(3 * time.Millisecond)
			}
		}
		if got := time.Since(start); got != 525*time.Millisecond {
			t.Errorf("5 pictures took %v, want 525ms", got)
		}
		time.Sleep(time.Second)
		start = time.Now()
		if encode(9); time.Since(start) != 105*time.Millisecond {
			t.Errorf("a picture after a pause took %v", time.Since(start))
		}
	})
}
