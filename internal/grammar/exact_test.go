// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"slices"
	"testing"
)

// exact reads an answer letter by letter, as the library does.
type exact struct {
	m      *machine
	stacks []int
}

func newExact(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, grammar string) *exact {
	t.Helper()
	defs, err := readGrammar(grammar)
	if err != nil {
		t.Fatalf("%v in\n%s", err, grammar)
	}
	m, err := compile(defs, nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, grammar)
	}
	e := &exact{m: m}
	for _, start := range m.starts[0] {
		e.expand(m.push(start, 0))
	}
	return e
}

func (e *exact) expand(stack int) { e.m.expand(stack, func(s int) { e.stacks = append(e.stacks, s) }) }

func (c charset) has(r rune) bool {
	return c.not != slices.ContainsFunc(c.ranges, func(p [2]rune) bool { return p[0] <= r && r <= p[1] })
}

// accept reads one letter and says whether it may come.
func (e *exact) accept(r rune) bool {
	before := e.stacks
	e.stacks = nil
	for _, s := range before {
		if s == 0 {
			continue
		}
		if at, a := e.m.top(s); a.set.has(r) {
			e.expand(e.m.push(at+1, e.m.links[s].below))
		}
	}
	slices.Sort(e.stacks)
	e.stacks = slices.Compact(e.stacks)
	return len(e.stacks) > 0
}

// takes says whether a whole text is an answer.
func (e *exact) takes(text string) bool {
	for _, r := range text {
		if !e.accept(r) {
			return false
		}
	}
	return slices.Contains(e.stacks, 0)
}

// letters are those that may come next, of those that matter to the form of JSON.
func (e *exact) letters() (out []rune) {
	for _, r := range "[{]}:,\"\\abcdtfnrulse01-. " {
		if slices.ContainsFunc(e.stacks, func(s int) bool {
			if s == 0 {
				return false
			}
			_, a := e.m.top(s)
			return a.set.has(r)
		}) {
			out = append(out, r)
		}
	}
	return out
}

// What a schema takes and what not, whichever way its grammar is written.
func TestAnswersOfASchema(t *testing.T) {
	f := func(schema string, good, bad []string) {
		t.Helper()
		g, err := FromSchema([]byte(schema))
		if err != nil {
			t.Errorf("%s: %v", schema, err)
			return
		}
		for _, text := range good {
			if !newExact(t, g).takes(text) {
				t.Errorf("%s: does not take %s\n%s", schema, text, g)
			}
		}
		for _, text := range bad {
			if newExact(t, g).takes(text) {
				t.Errorf("%s: takes %s\n%s", schema, text, g)
			}
		}
	}
	f(`{}`, []string{`{"a": [1, -2.5e3, "x\u00e9\n", true, null]}`, `[]`, `0`}, []string{``, `01`, `[1,]`, `"a`})
	f(`{"type":"array","items":{"type":"string","minLength":1,"maxLength":2},"minItems":1,"maxItems":2}`,
		[]string{`["a"]`, `["ab", "\n"]`}, []string{`[]`, `[""]`, `["abc"]`, `["a","a","a"]`})
	// Extra members have no name that the schema knows, however it is spelled.
	f(`{"properties":{"ab":{"type":"null"},"abc":{"type":"null"},"é":{"type":"null"},"q\"x":{"type":"null"}},"additionalProperties":{"type":"number"}}`,
		[]string{`{}`, `{"ab":null}`, `{"a":1}`, `{"":1}`, `{"abd":1,"abcd":2,"b":3,"q":4,"x\n":5}`, `{"ab":null,"abc":null,"z":1}`},
		[]string{`{"ab":1}`, `{"abc":1}`, `{"z":null}`, `{"é":1}`, `{"q\"x":1}`, `{"\u0061b":1}`, `{"a\u0062":1}`})
	// Branches that begin alike.
	f(`{"anyOf":[
		{"properties":{"l":{"type":"null"},"t":{"const":"a"}},"required":["l","t"]},
		{"properties":{"l":{"type":"null"},"t":{"const":"b"},"x":{"type":"null"}},"required":["l","t"]},
		{"properties":{"l":{"type":"null"}},"required":["l"]},
		{"properties":{"l":{"type":"null"}},"required":["l"],"additionalProperties":{"type":"null"}},
		{"type":"null"}]}`,
		[]string{`{"l":null,"t":"a"}`, `{"l":null,"t":"b","x":null}`, `{"l":null,"t":"b"}`, `{"l":null}`, `{"l":null,"y":null}`, `null`},
		[]string{`{}`, `{"l":null,"t":"a","x":null}`, `{"t":"a"}`, `{"l":null,"t":"c"}`, `{"l":null,}`})
	f(`{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"},{"properties":{"n":{"anyOf":[{"$ref":"#"},{"$ref":"#/$defs/a"}]}},"required":["n"]}],"$defs":{"a":{"properties":{"m":{"type":"null"}},"required":["m"]}}}`,
		[]string{`{"m":null}`, `{"n":{"m":null}}`, `{"n":{"n":{"m":null}}}`}, []string{`{"n":null}`, `{}`})
	// More values than are listed.
	f(`{"enum":["a","ab","abc","b","c\"","d","e","f","g","h","i","j","k","l","m","n","o",1,10,12,null,true,{"x":[1]}]}`,
		[]string{`"a"`, `"ab"`, `"abc"`, `"c\""`, `1`, `10`, `12`, `null`, `true`, `{"x":[1]}`}, []string{`"ac"`, `"`, `"abcd"`, `11`, `"c"`, `{}`, ``})
}
