// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"testing"
	"time"

	"afterimage/internal/engine"
	"afterimage/internal/grammar"
	"afterimage/internal/openai"
)

// formText is a text model that notes the grammars which it is given.
type formText struct {
	fakeText
	read *[]string
}

func (f formText) Constrain(g string) (engine.Constraint, error) {
	*f.read = append(*f.read, g)
	return freeForm{}, nil
}

type freeForm struct{ engine.Constraint }

func (freeForm) Close() {}

// The answer of every kind of call is held to the form that was checked.
func TestAnswersHaveTheirForm(t *testing.T) {
	var read []string
	p := newWorker(t, formText{fakeText{template: plainTemplate}, &read})
	const format = `"response_format":{"type":"json_object"}`
	chat, err := openai.ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}],` + format + `}`))
	if err != nil {
		t.Fatal(err)
	}
	f := func(kind string, plan func() (*prompt, error)) {
		t.Helper()
		read = nil
		pr, err := plan()
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		a := newAnswer(p, &chat.Options, nil, &prepared{}, time.Time{}, "id")
		defer a.closeChoices()
		if err := a.newChoices(promptOf{pr, pr.tokens}); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if len(read) != 2 || read[0] != grammar.AnyObject || read[1] != grammar.AnyObject {
			t.Errorf("%s: the engine read %q", kind, read)
		}
	}
	f("chat", func() (*prompt, error) {
		pr, _, err := p.plan(chat, nil, nil)
		return pr, err
	})
	f("adopted", func() (*prompt, error) {
		pr, _, err := p.adoptedPrompt(chat, &adopted{})
		return pr, err
	})
	f("text", func() (*prompt, error) {
		a, err := p.textAnswer([]byte(`{"prompt":"x",`+format+`}`), time.Time{}, "id")
		if err != nil {
			return nil, err
		}
		return a.prompts[0].prompt, nil
	})
}
