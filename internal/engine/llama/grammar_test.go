// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"afterimage/internal/batch"
	"afterimage/internal/engine"
	"afterimage/internal/grammar"
	"afterimage/internal/model"
)

// constrained lets a random model write an answer of the form of a schema, at most n tokens long.
func constrained(t *testing.T, x *Text, sched *batch.Scheduler, schema string, seed uint64, n int) (text string, ended bool) {
	t.Helper()
	g, err := grammar.FromSchema([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	c, err := x.Constrain(g)
	if err != nil {
		t.Fatalf("%s: %v\n%s", schema, err, g)
	}
	s, err := engine.NewSampler(engine.Sampling{Temperature: 1.5, Seed: seed, Constraint: c})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out strings.Builder
	count := 0
	err = sched.Ask(t.Context(), []batch.Part{{Tokens: tokens(20)}}, func(l []float32) (int32, bool, error) {
		tok, err := s.Pick(l)
		if err != nil {
			return 0, false, err
		}
		if ended = x.EndOfGeneration(tok); !ended {
			out.Write(x.Piece(tok))
		}
		count++
		return tok, !ended && count < n, nil
	})
	if err != nil {
		t.Fatalf("%s after %q: %v", schema, out.String(), err)
	}
	return out.String(), ended
}

// A model of random weights, which writes noise when it is free, writes what a schema asks for.
func TestAnswersFollowASchema(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1})
	sched := batch.New(x.Runner(), batch.Config{})
	defer sched.Close()
	f := func(schema string, check func(v any) bool) {
		t.Helper()
		for seed := range uint64(4) {
			text, ended := constrained(t, x, sched, schema, seed, 600)
			var v any
			if !ended {
				continue // a random model may write a long number
			}
			if err := json.Unmarshal([]byte(text), &v); err != nil || !check(v) {
				t.Errorf("%s: answered %q (%v)", schema, text, err)
			}
		}
	}
	f(`{"enum":["red","blue",7]}`, func(v any) bool { return v == "red" || v == "blue" || v == 7. })
	f(`{"type":"object","properties":{"b":{"type":"boolean"},"a":{"enum":["x"]},"c":{"type":"null"}},"required":["a"]}`, func(v any) bool {
		m, ok := v.(map[string]any)
		for k := range m {
			ok = ok && strings.Contains("abc", k)
		}
		return ok && m["a"] == "x"
	})
	f(`{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":3}`, func(v any) bool {
		l, ok := v.([]any)
		return ok && len(l) >= 2 && len(l) <= 3
	})
	f(`{"type":"string","minLength":2,"maxLength":4}`, func(v any) bool { n := len([]rune(v.(string))); return n >= 2 && n <= 4 })
	f(`{"$defs":{"n":{"type":"object","properties":{"next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/n"}]}},"required":["next"]}},"$ref":"#/$defs/n"}`,
		func(v any) bool { _, ok := v.(map[string]any)["next"]; return ok })
	// branches that begin alike, extra members beside named ones, more values than are listed
	f(`{"anyOf":[{"properties":{"n":{"type":"null"},"t":{"const":"a"}},"required":["n","t"]},{"properties":{"n":{"type":"null"},"t":{"const":"b"}},"required":["n","t"]}]}`,
		func(v any) bool {
			m, ok := v.(map[string]any)
			return ok && len(m) == 2 && (m["t"] == "a" || m["t"] == "b")
		})
	f(`{"properties":{"ab":{"type":"null"}},"additionalProperties":{"const":7}}`, func(v any) bool {
		m, ok := v.(map[string]any)
		for k, v := range m {
			ok = ok && (k == "ab" && v == nil || k != "ab" && v == 7.)
		}
		return ok
	})
	f(`{"enum":["a","ab","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q\"",12,1]}`, func(v any) bool { return v != nil })
	if text, ended := constrained(t, x, sched, `{"type":"object"}`, 1, 200); !strings.HasPrefix(text, "{") || ended && !json.Valid([]byte(text)) {
		t.Errorf("any object: %q", text)
	}
}

func TestBadGrammarsAreRefused(t *testing.T) {
	x := newText(t, TextConfig{Model: randomPair(t, model.MLP).text, Slots: 1})
	for _, g := range []string{"", "root ::= nothing", "root ::= root \"a\"", "value ::= \"a\"", "root ::= ("} {
		if c, err := x.Constrain(g); err == nil {
			c.Close()
			t.Errorf("%q was taken", g)
		}
	}
	c, err := x.Constrain(`root ::= "a" | "é"`)
	if err != nil {
		t.Fatal(err)
	}
	toks, err := x.Tokenize("aé", false)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Allows(toks[0]) || !c.Allows(toks[1]) || c.Allows(toks[2]) || c.Allows(-1) || c.Allows(1<<30) {
		t.Error("allows the wrong tokens")
	}
	c.Accept(toks[2]) // not allowed: the library would end the process
	c.Accept(int32(rand.N(1000)) + 1<<20)
	c.Accept(toks[0])
	end, _ := x.Tokenize("<|endoftext|>", true)
	c.Accept(end[0])
	if c.Allows(toks[0]) || !c.Allows(end[0]) {
		t.Error("goes on after the end")
	}
	c.Close()
	c.Close()
	if c.Allows(toks[0]) {
		t.Error("allows after Close")
	}
}
