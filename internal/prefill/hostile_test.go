// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/openai"
)

func (f fakeText) Spec() engine.TextSpec {
	return engine.TextSpec{Engine: "x", Cols: 4, DType: embedding.Float32, Context: 100, PieceBytes: 3}
}

func newWorker(t *testing.T, text engine.Text) *Prefill {
	t.Helper()
	p, err := New(Config{Engine: text, PoolBytes: 1 << 20, Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// TestPrepareTakesNoNonsense: numbers that no picture has are refused, and none of them overflows.
func TestPrepareTakesNoNonsense(t *testing.T) {
	p := newWorker(t, fakeText{template: plainTemplate})
	chat := json.RawMessage(`{"messages":[{"role":"user","content":[{"type":"afterimage_item","index":0},{"type":"afterimage_item","index":1},{"type":"text","text":"x"}]}]}`)
	check := func(rows, tokens, bytes int) error {
		it := control.PrepareItem{Identifier: "i", Key: "a@id:i", Contract: embedding.Contract{Rows: rows, Cols: 4, DType: embedding.Float32}, Tokens: tokens, Bytes: bytes}
		req := control.PrepareRequest{Request: "r", Engine: "x", Items: []control.PrepareItem{it, it}, Uses: []int{0, 1}, Chat: chat}
		c, err := p.check(&req)
		if err == nil {
			_, _, err = p.plan(c, req.Items, req.Uses)
		}
		return err
	}
	if err := check(2, 3, 32); err != nil {
		t.Fatalf("two good items: %v", err)
	}
	for _, c := range [][3]int{
		{0, 3, 32}, {-1, 3, 32}, {3, 3, 32}, {1 << 60, 3, 32}, {math.MaxInt, math.MaxInt, math.MaxInt}, {math.MinInt, 3, 32},
		{2, 1, 32}, {2, -1, 32}, {2, math.MinInt, 32}, {2, math.MaxInt, 32}, {2, math.MaxInt32, 32}, {2, 60, 32},
		{2, 3, -1}, {2, 3, math.MinInt}, {2, 3, math.MaxInt}, {2, 3, math.MaxInt/2 + 1}, {2, 3, 600 << 10},
	} {
		err := check(c[0], c[1], c[2])
		var e *openai.Error
		if !errors.As(err, &e) || e.Status != 400 {
			t.Errorf("rows %d, tokens %d, bytes %d: got %v, want a 400", c[0], c[1], c[2], err)
		}
	}
}

// TestPrepareTakesNoForeignKey: a key is that of the item's identifier, or no Encoder will ever deliver under it.
func TestPrepareTakesNoForeignKey(t *testing.T) {
	p := newWorker(t, fakeText{template: plainTemplate})
	for _, it := range []control.PrepareItem{{}, {Identifier: "i"}, {Key: "a@id:"}, {Identifier: "i", Key: "i"}, {Identifier: "i", Key: "a@id:j"}, {Identifier: "i", Key: "a@id:ii"}} {
		it.Contract = embedding.Contract{Rows: 2, Cols: 4, DType: embedding.Float32}
		_, err := p.check(&control.PrepareRequest{Request: "r", Engine: "x", Items: []control.PrepareItem{it}})
		var e *openai.Error
		if !errors.As(err, &e) || e.Status != 400 || !strings.Contains(e.Message, "item 0: key") {
			t.Errorf("identifier %q, key %q: got %v, want a 400", it.Identifier, it.Key, err)
		}
	}
}

// TestPrepareTakesNoForeignRows (G02): rows of another engine, width or type are refused with both values.
func TestPrepareTakesNoForeignRows(t *testing.T) {
	p := newWorker(t, fakeText{template: plainTemplate})
	ask := func(engine string, c embedding.Contract) error {
		it := control.PrepareItem{Identifier: "i", Key: "a@id:i", Contract: c, Tokens: 2, Bytes: 64}
		_, err := p.check(&control.PrepareRequest{Request: "r", Engine: engine, Items: []control.PrepareItem{it},
			Chat: json.RawMessage(`{"messages":[{"role":"user","content":"x"}]}`)})
		return err
	}
	f := func(engine string, cols int, d embedding.DType, wants ...string) {
		t.Helper()
		err := ask(engine, embedding.Contract{Rows: 2, Cols: cols, DType: d})
		var e *openai.Error
		if !errors.As(err, &e) || e.Status != http.StatusUnprocessableEntity {
			t.Fatalf("got %v, want a 422", err)
		}
		for _, want := range wants {
			if !strings.Contains(e.Message, want) {
				t.Errorf("got %q, want it to have %q", e.Message, want)
			}
		}
	}
	if err := ask("x", embedding.Contract{Rows: 2, Cols: 4, DType: embedding.Float32}); err != nil {
		t.Fatalf("rows that fit: %v", err)
	}
	f("y", 4, embedding.Float32, `"y"`, `"x"`)
	f("x", 5, embedding.Float32, "5 x torch.float32", "4 x torch.float32")
	f("x", 4, embedding.Float16, "4 x torch.float16", "4 x torch.float32")
}

// neverTokenized is a text model whose tokeniser must not be asked.
type neverTokenized struct {
	fakeText
	t *testing.T
}

func (n neverTokenized) Tokenize(string, bool) ([]int32, error) {
	n.t.Error("tokenised")
	return nil, errors.New("tokenised")
}

// TestEndlessTextIsNotTokenized: what can fit in no case is refused before any work.
func TestEndlessTextIsNotTokenized(t *testing.T) {
	p := newWorker(t, neverTokenized{t: t})
	for name, chat := range map[string]*openai.Chat{
		"text":     {Messages: []openai.Message{{Parts: []openai.Part{{Text: strings.Repeat("x", 300)}}}}},
		"parts":    {Messages: []openai.Message{{Parts: make([]openai.Part, 301)}}},
		"messages": {Messages: make([]openai.Message, 100)},
		"role":     {Messages: []openai.Message{{Role: strings.Repeat("x", 301)}}},
	} {
		_, _, err := p.plan(chat, nil, nil)
		var e *openai.Error
		if !errors.As(err, &e) || e.Status != 400 || e.Param != "input_tokens" {
			t.Errorf("%s: got %v, want that the prompt is too long", name, err)
		}
	}
	q := newWorker(t, fakeText{template: plainTemplate})
	fits := &openai.Chat{Messages: []openai.Message{{Role: "user", Parts: []openai.Part{{Text: strings.Repeat("x", 90)}}}}}
	if _, n, err := q.plan(fits, nil, nil); err != nil || n != 92 {
		t.Errorf("a prompt that fits: %d tokens, %v", n, err)
	}
}
