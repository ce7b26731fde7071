// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"afterimage/internal/engine"
)

// TestTemplatesRenderAsInPython renders the templates of common models and compares with what Jinja2 made
// of them.
func TestTemplatesRenderAsInPython(t *testing.T) {
	var recorded struct {
		Templates map[string]string
		Cases     []struct {
			Template string
			Messages []engine.Message
			Want     *string
		}
	}
	file, err := os.ReadFile("testdata/jinja.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &recorded); err != nil {
		t.Fatal(err)
	}
	for _, c := range recorded.Cases {
		j, err := newJinja(recorded.Templates[c.Template], "<s>", "</s>")
		if err != nil {
			t.Errorf("%s: %v", c.Template, err)
			continue
		}
		got, err := j.render(c.Messages)
		switch {
		case (c.Want == nil) != (err != nil):
			t.Errorf("%s, %v: got %q, %v", c.Template, c.Messages, got, err)
		case c.Want != nil && got != *c.Want:
			t.Errorf("%s, %v:\n got %q\nwant %q", c.Template, c.Messages, got, *c.Want)
		}
	}
	if len(recorded.Cases) < 30 {
		t.Errorf("%d cases", len(recorded.Cases))
	}
}

// A template's own words reach the caller, and a broken one is an error.
func TestTemplatesRefuse(t *testing.T) {
	j, err := newJinja(`{% if messages|length > 1 %}{{ raise_exception("one turn only") }}{% endif %}{{ messages[0].content }}`, "", "")
	if err != nil {
		t.Fatal(err)
	}
	one := engine.Message{Role: "user", Content: "{{ x }}"}
	if got, err := j.render([]engine.Message{one}); err != nil || got != "{{ x }}" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := j.render([]engine.Message{one, one}); err == nil || !strings.Contains(err.Error(), "one turn only") {
		t.Errorf("got %v, want the template's words", err)
	}
	for _, source := range []string{"{% for", "{{ 1 +", "{% include '/etc/passwd' %}", "{% import 'x' as y %}"} {
		if j, err := newJinja(source, "", ""); err == nil {
			if got, err := j.render([]engine.Message{one}); err == nil && got != "" {
				t.Errorf("%s gives %q", source, got)
			}
		}
	}
}
