// SPDX-License-Identifier: Apache-2.0

package device

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
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

// answer feeds one image and some text and reads n tokens.
func answer(t *testing.T, m *Text, rows []byte) string {
	t.Helper()
	s, err := m.NewSequence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	toks, _ := m.Tokenize("<|im_start|>user\n", true)
	if err := s.PrefillTokens(t.Context(), toks, false); err != nil {
		t.Fatal(err)
	}
	if err := s.PrefillRows(t.Context(), embedding.Part{Rows: len(rows) / 8, Positions: len(rows) / 8}, rows); err != nil {
		t.Fatal(err)
	}
	if err := s.PrefillTokens(t.Context(), []int32{'x', endToken}, true); err != nil {
		t.Fatal(err)
	}
	var out []byte
	sampler, err := engine.NewSampler(engine.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		tok, err := sampler.Pick(s.Logits())
		if err != nil {
			t.Fatal(err)
		}
		if m.EndOfGeneration(tok) {
			return string(out)
		}
		out = append(out, m.Piece(tok)...)
		if err := s.PrefillTokens(t.Context(), []int32{tok}, true); err != nil {
			t.Fatal(err)
		}
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
	s, err := m.NewSequence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nan := make([]byte, 8)
	copy(nan, []byte{0, 0, 0xc0, 0x7f})
	if v := math.Float32frombits(0x7fc00000); !math.IsNaN(float64(v)) {
		t.Fatal("the test's NaN is none")
	}
	for name, err := range map[string]error{
		"short": s.PrefillRows(t.Context(), embedding.Part{Rows: 2}, make([]byte, 8)),
		"nan":   s.PrefillRows(t.Context(), embedding.Part{Rows: 1}, nan),
	} {
		if !errors.Is(err, engine.ErrBadRows) {
			t.Errorf("%s: %v, want ErrBadRows", name, err)
		}
	}
	if err := s.PrefillTokens(t.Context(), make([]int32, 5), false); !errors.Is(err, engine.ErrContextFull) {
		t.Errorf("5 tokens in a context of 4: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.NewSequence(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("no slot free: %v", err)
	}
	s.Close()
	s.Close() // once too often must not free a second slot
	if len(m.slots) != 0 {
		t.Errorf("%d slots taken after Close", len(m.slots))
	}
}

// TestDecodeStepsAreShared decodes on three sequences that wake up at different times: each step serves
// all of them, and a prefill that comes between delays all of them once.
func TestDecodeStepsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := TextConfig{Model: "m", Cols: 2, DType: embedding.Float32, Context: 4096, Slots: 4, Whole: true,
			PrefillTime: time.Millisecond, DecodeTime: 20 * time.Millisecond}
		m, err := NewText(cfg)
		if err != nil {
			t.Fatal(err)
		}
		run := func(prompt, steps int, late time.Duration) time.Duration {
			s, err := m.NewSequence(t.Context())
			if err != nil {
				t.Error(err)
				return 0
			}
			defer s.Close()
			start := time.Now()
			if err := s.PrefillRows(t.Context(), embedding.Part{Rows: prompt - 2, Positions: prompt - 2}, make([]byte, (prompt-2)*8)); err != nil {
				t.Error(err)
			}
			if got := time.Since(start); got != 0 {
				t.Errorf("rows of a whole prompt took %v before its end", got)
			}
			if err := s.PrefillTokens(t.Context(), []int32{'a', 'b'}, true); err != nil {
				t.Error(err)
			}
			for range steps {
				time.Sleep(late)
				if err := s.PrefillTokens(t.Context(), []int32{'x'}, true); err != nil {
					t.Error(err)
				}
			}
			return time.Since(start)
		}
		var wg sync.WaitGroup
		got := make([]time.Duration, 3)
		for i := range got {
			wg.Go(func() { got[i] = run(100, 10, time.Duration(i)*time.Millisecond) })
		}
		wg.Wait()
		// Three prefills of 100 ms in a row, then steps that all of them are in.
		for i, d := range got {
			if d > 300*time.Millisecond+12*20*time.Millisecond {
				t.Errorf("sequence %d took %v: its steps were not shared", i, d)
			}
		}
	})
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
