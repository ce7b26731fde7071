// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"errors"
	"strings"
	"testing"
	"time"

	"afterimage/internal/batch"
	"afterimage/internal/engine"
	"afterimage/internal/grammar"
)

// doubling is what a schema of two recursive arrays came to, which package grammar refuses: with every "[" there are twice
// as many ways to read an answer.
const doubling = `root ::= a | b
a ::= "[" ( root ( "," root )* )? "]"
b ::= "[" ( root ( "," root )* )? " ]"
`

// A grammar that got past all checks, and a bias for what nests, ends the answer that it is for; others get theirs from the
// same model meanwhile.
func TestGrammarThatExplodesFailsAlone(t *testing.T) {
	x := newText(t, TextConfig{Model: realModel(t), Slots: 2, ContextTokens: 512, Template: "chatml"})
	sched := batch.New(x.Runner(), batch.Config{})
	defer sched.Close()
	open, err := x.Tokenize("[", false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x.Constrain(doubling)
	if err != nil {
		t.Fatal(err)
	}
	attacked, err := engine.NewSampler(engine.Sampling{Constraint: c, Bias: map[int32]float32{open[0]: 100}, Patience: time.Second / 4})
	if err != nil {
		t.Fatal(err)
	}
	defer attacked.Close()
	began, ended := make(chan struct{}), make(chan error, 1)
	opened := 0
	go func() {
		ended <- sched.Ask(t.Context(), []batch.Part{{Tokens: tokens(20)}}, func(l []float32) (int32, bool, error) {
			tok, err := attacked.Pick(l)
			if opened++; opened == 1 {
				close(began)
			}
			return tok, opened < 400, err
		})
	}()
	<-began
	if got, want := ask(t, x, sched, "What is the capital of France?"), "The capital of France is Paris."; got != want {
		t.Errorf("beside the attack: %q, want %q", got, want)
	}
	if err := <-ended; !errors.Is(err, engine.ErrFormSlow) {
		t.Errorf("after %d tokens: %v, want %v", opened, err, engine.ErrFormSlow)
	}
	if _, err := grammar.FromSchema([]byte(`{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"},"maxItems":9}]}`)); err == nil {
		t.Error("the schema was taken")
	}
}

// ask returns the likeliest answer to a question.
func ask(t *testing.T, x *Text, sched *batch.Scheduler, question string) string {
	t.Helper()
	prompt, err := x.Prompt([]engine.Message{{Role: "user", Content: question}})
	if err != nil {
		t.Fatal(err)
	}
	toks, err := x.Tokenize(prompt, true)
	if err != nil {
		t.Fatal(err)
	}
	greedy, err := engine.NewSampler(engine.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	err = sched.Ask(t.Context(), []batch.Part{{Tokens: append(x.Begin(), toks...)}}, func(l []float32) (int32, bool, error) {
		tok, err := greedy.Pick(l)
		if err == nil && !x.EndOfGeneration(tok) {
			answer.Write(x.Piece(tok))
			return tok, answer.Len() < 200, nil
		}
		return tok, false, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer.String()
}
