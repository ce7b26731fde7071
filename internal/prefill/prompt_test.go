// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"afterimage/internal/engine"
	"afterimage/internal/openai"
)

// fakeText is a text model of one token per byte, whose only control token is "<s>" (1000), and whose
// template is a function.
type fakeText struct {
	engine.Text
	template func([]engine.Message) (string, error)
}

// Runner has sequences in which nothing can be computed.
func (f fakeText) Runner() engine.Runner { return fakeRunner{} }

type fakeRunner struct{ engine.Runner }

func (fakeRunner) Limits() engine.Limits {
	return engine.Limits{Sequences: 1, Context: 100, Cells: 100, Batch: 100}
}

func (f fakeText) Begin() []int32 { return []int32{7} }

func (f fakeText) Prompt(m []engine.Message) (string, error) { return f.template(m) }

func (f fakeText) Tokenize(s string, special bool) ([]int32, error) {
	if strings.Contains(s, "\xff") {
		return nil, errors.New("not text")
	}
	var out []int32
	for s != "" {
		if special && strings.HasPrefix(s, "<s>") {
			out, s = append(out, 1000), s[3:]
			continue
		}
		out, s = append(out, int32(s[0])), s[1:]
	}
	return out, nil
}

func plainTemplate(msgs []engine.Message) (string, error) {
	var b strings.Builder
	for _, m := range msgs {
		b.WriteString("<s>" + m.Content)
	}
	return b.String(), nil
}

// show writes a prompt as text: control tokens as "<s>", BOS as "^", media positions as "{n}".
func show(p *prompt) string {
	var b strings.Builder
	for _, s := range p.segments {
		if s.item >= 0 {
			fmt.Fprintf(&b, "{%d}", s.item)
			continue
		}
		b.WriteByte('|') // segments are joined, so there is one between items
		for _, t := range s.tokens {
			switch t {
			case 7:
				b.WriteByte('^')
			case 1000:
				b.WriteString("<S>")
			default:
				b.WriteByte(byte(t))
			}
		}
	}
	return b.String()
}

func text(s string) openai.Part { return openai.Part{Text: s} }
func item(i int) openai.Part    { return openai.Part{IsItem: true, Item: i} }

func chatOf(parts ...openai.Part) *openai.Chat {
	return &openai.Chat{Messages: []openai.Message{{Role: "user", Parts: parts}}}
}

func TestBuildPrompt(t *testing.T) {
	f := func(want string, parts ...openai.Part) {
		t.Helper()
		p, err := buildPrompt(fakeText{template: plainTemplate}, chatOf(parts...))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, show(p)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		tokens, media := 0, 0
		for _, s := range p.segments {
			tokens += len(s.tokens)
			if s.item >= 0 {
				media++
			}
		}
		if p.tokens != tokens || p.media != media {
			t.Errorf("says %d tokens and %d media, has %d and %d", p.tokens, p.media, tokens, media)
		}
	}
	f("|^<S>hi", text("hi"))
	f("|^<S>a\nb", text("a"), text("b"))
	f("|^<S>{0}|a", item(0), text("a"))
	f("|^<S>a{0}{1}|b\nc{2}", text("a"), item(0), item(1), text("b"), text("c"), item(2))
	f("|^<S>", text(""))
	f("|^<S>")
	// What a client writes stays text, whatever it looks like.
	f("|^<S><s>", text("<s>"))
	f("|^<S>x<s>y{0}|<s>", text("x<s>y"), item(0), text("<s>"))
	f("|^<S>[[0123456789abcdef:0]]{0}", text("[[0123456789abcdef:0]]"), item(0))
	f("|^<S>[[{0}|]]", text("[["), item(0), text("]]"))
	f("|^<S><s\n>", text("<s"), text(">"))
	f("|^<S><s{0}|>", text("<s"), item(0), text(">"))
}

// markers finds what stands for the parts that are cut out.
var markers = regexp.MustCompile(`\[\[[0-9a-f]{16}:\d+\]\]`)

func TestMarkersAreNeverTheSame(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		_, err := buildPrompt(fakeText{template: func(m []engine.Message) (string, error) {
			for _, word := range markers.FindAllString(m[0].Content, -1) {
				if seen[word] {
					t.Errorf("%s was used before", word)
				}
				seen[word] = true
			}
			return m[0].Content, nil
		}}, chatOf(item(0), text("<s>"), item(1)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d markers seen, want 300", len(seen))
	}
}

// A template that does anything to the parts but place them is refused: the picture would stand
// elsewhere, twice, or nowhere.
func TestTemplatesThatMisplaceParts(t *testing.T) {
	f := func(words string, template func(content string) string) {
		t.Helper()
		_, err := buildPrompt(fakeText{template: func(m []engine.Message) (string, error) {
			return template(m[0].Content), nil
		}}, chatOf(text("a"), item(0), text("b"), item(1)))
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
	}
	f("dropped 2 of 2", func(string) string { return "" })
	f("dropped 1 of 2", func(s string) string { return s[:len(s)-1-len(markers.FindString(s))] })
	f("dropped 2 of 2", strings.ToUpper)
	f("moved or repeated", func(s string) string { return s + s })
	f("moved or repeated", func(s string) string {
		m := markers.FindAllString(s, -1)
		return m[1] + m[0]
	})
	f("moved or repeated", func(s string) string { return strings.ReplaceAll(s, "]]", "") })
	f("moved or repeated", func(s string) string { return strings.ReplaceAll(s, ":0]]", ":99999999999999999999]]") })
	f("moved or repeated", func(s string) string { return strings.ReplaceAll(s, ":0]]", ":-1]]") })
	f("moved or repeated", func(s string) string { return strings.ReplaceAll(s, ":0]]", ":]]") })
}

func TestBuildPromptPassesErrorsOn(t *testing.T) {
	broken := errors.New("no such role")
	_, err := buildPrompt(fakeText{template: func([]engine.Message) (string, error) { return "", broken }}, chatOf(text("a")))
	if !errors.Is(err, broken) {
		t.Errorf("template: %v", err)
	}
	if _, err = buildPrompt(fakeText{template: plainTemplate}, chatOf(text("\xff"))); err == nil {
		t.Error("a text that cannot be tokenised went through")
	}
	chat := chatOf(text("a"))
	chat.Messages[0].Role = "user<s>"
	if _, err = buildPrompt(fakeText{template: plainTemplate}, chat); err == nil || !strings.Contains(err.Error(), "control tokens") {
		t.Errorf("a role with control tokens: %v", err)
	}
}
