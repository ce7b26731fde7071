// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"fmt"
	"strings"
	"testing"
)

func TestFromSchema(t *testing.T) {
	f := func(schema string, parts ...string) {
		t.Helper()
		g, err := FromSchema([]byte(schema))
		if err != nil {
			t.Errorf("%s: %v", schema, err)
		}
		for _, p := range parts {
			if !strings.Contains(g, p+"\n") {
				t.Errorf("%s: no line %s in\n%s", schema, p, strings.TrimSuffix(g, basics))
			}
		}
	}
	f(`true`, `root ::= value`)
	f(`{}`, `root ::= value`)
	f(`{"type":"object"}`, `root ::= "{" ws ( r2 ( ws "," ws r2 )* )? ws "}"`)
	f(`{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}},"required":["b"]}`,
		`r1 ::= integer`, `r2 ::= "\"b\"" ":" ws r1`, `r4 ::= "\"a\"" ":" ws r3`, `root ::= "{" ws r6 ws "}"`, `r5 ::= ( ws "," ws r4 )?`, `r6 ::= r2 r5`)
	f(`{"enum":["a<b",1.5,null,{"x":[true]}]}`, `root ::= "\"a<b\"" | "1.5" | "null" | "{" "\"x\"" ":" "[" "true" "]" "}"`)
	f(`{"const":"\n\"ü"}`, `root ::= "\"\\n\\\"ü\""`)
	f(`{"type":["string","null"],"maxLength":3}`, `r1 ::= "\"" char{0,3} "\""`, `root ::= r1 | null`)
	f(`{"type":"array","items":{"type":"number"},"minItems":2,"maxItems":4}`, `root ::= "[" ws r1 ( ws "," ws r1 ){1,3} ws "]"`)
	f(`{"type":"array","maxItems":0}`, `root ::= "[" ws "]"`)
	f(`{"type":"array","maxItems":1}`, `root ::= "[" ws ( value ( ws "," ws value ){0,0} ws )? "]"`)
	f(`{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a~1b"}],"$defs":{"a/b":{"type":"boolean"}}}`, `root ::= r1 | r3`, `r2 ::= boolean`, `r3 ::= r2`)
	f(`{"properties":{"next":{"$ref":"#"}}}`, `root ::= "{" ws ( r3 )? ws "}"`, `r1 ::= "{" ws ( r3 )? ws "}"`, `r2 ::= r1`)
}

func TestFromSchemaRefuses(t *testing.T) {
	f := func(schema string, words ...string) {
		t.Helper()
		_, err := FromSchema([]byte(schema))
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%.100s: %v, want %q", schema, err, w)
			}
		}
	}
	f(``, "EOF")
	f(`{"type":`, "EOF")
	f(`7`, "#: must be an object")
	f(`false`, "must be an object")
	f(`{"type":"date"}`, `#/type: "date" is no type`)
	f(`{"type":"integer","minimum":3}`, "#/minimum", "cannot be held")
	f(`{"type":"string","pattern":"a+"}`, "#/pattern")
	f(`{"type":"string","format":"date"}`, "#/format")
	f(`{"properties":{"a":{"type":"array","items":{"multipleOf":2}}}}`, "#/properties/a/items/multipleOf")
	f(`{"type":"object","required":["x"]}`, "#/required", `"x" is not among`)
	f(`{"type":"object","properties":{},"required":[7]}`, "#/required")
	f(`{"properties":[1]}`, "#/properties")
	f(`{"type":"string","minLength":5,"maxLength":2}`, "less than minLength")
	f(`{"type":"array","minItems":5,"maxItems":2}`, "less than minItems")
	f(`{"type":"string","maxLength":1001}`, "0 to 1000")
	f(`{"type":"string","maxLength":1.5}`, "0 to 1000")
	f(`{"enum":[]}`, "#/enum")
	f(`{"anyOf":{}}`, "#/anyOf")
	f(`{"anyOf":[{"type":"null"}],"properties":{}}`, "#/properties")
	f(`{"allOf":[{},{}]}`, "#/allOf")
	f(`{"$ref":"other.json"}`, "#/$ref")
	f(`{"$ref":"#/$defs/x"}`, "not in the schema")
	f(`{"$ref":7}`, "#/$ref")
	f(strings.Repeat(`{"items":`, 40)+`{}`+strings.Repeat(`}`, 40), "32 levels")
	f(`{"enum":[`+strings.Repeat(`[`, 40)+strings.Repeat(`]`, 40)+`]}`, "32 levels")
	f(`{"anyOf":[`+consts(2500)+`]}`, "too large")
}

// consts lists n schemas of one value each.
func consts(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"const":%d}`, i)
	}
	return strings.Join(out, ",")
}

// Definitions that each name the next one twice are few rules and more ways than the library can follow.
// An error repeats of each text of the schema no more than both its ends.
func TestFromSchemaShortensWhatItRepeats(t *testing.T) {
	long := strings.Repeat("ü", 9000)
	for schema, words := range map[string]string{
		`{"type":"` + long + `Z"}`:                                       `üüZ" is no type`,
		`{"type":"object","required":["` + long + `Z"]}`:                 `üüZ" is not among the properties`,
		`{"$ref":"#/` + long + `Z"}`:                                     "üüZ is not in the schema",
		`{"properties":{"` + long + `":{"properties":{"Z":{"not":1}}}}}`: "üü/properties/Z/not: cannot be held",
	} {
		_, err := FromSchema([]byte(schema))
		if err == nil || !strings.Contains(err.Error(), words) || len(err.Error()) > 500 {
			t.Errorf("%.40s: %.600v, want %q", schema, err, words)
		}
	}
}

func TestFromSchemaBoundsTheWaysToBegin(t *testing.T) {
	doubling := func(n int) string {
		var s strings.Builder
		s.WriteString(`{"$ref":"#/$defs/a0","$defs":{`)
		for i := range n {
			fmt.Fprintf(&s, `"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
		}
		fmt.Fprintf(&s, `"a%d":{"type":"null"}}}`, n)
		return s.String()
	}
	tree := `{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"}},{"type":"object","properties":{"a":{"$ref":"#"}}}]}`
	for _, schema := range []string{doubling(12), tree} {
		if _, err := FromSchema([]byte(schema)); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
	for _, schema := range []string{
		doubling(13), doubling(600), `{"$ref":"#"}`, `{"properties":{"x":` + `{"$ref":"#/$defs/a"}},"$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}]}}}`,
	} {
		if _, err := FromSchema([]byte(schema)); err == nil || !strings.Contains(err.Error(), "ways to begin") {
			t.Errorf("%.80s: %v", schema, err)
		}
	}
}

// Of whatever is taken, the library can read the grammar, and its stacks stay bounded where all that may nest does.
func FuzzFromSchema(f *testing.F) {
	for _, s := range []string{`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{"enum":[1]}`, `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`} {
		f.Add([]byte(s))
	}
	for _, a := range attacks {
		f.Add([]byte(a.schema))
	}
	for _, x := range examples {
		f.Add([]byte(x.schema))
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		g, err := FromSchema(schema)
		if err != nil {
			return
		}
		e := newExact(t, g)
		for range 60 {
			next := e.letters()
			if len(next) == 0 {
				break
			}
			if e.accept(next[0]); len(e.stacks) > perLetter*maxReadings {
				t.Fatalf("%q: %d stacks", schema, len(e.stacks))
			}
		}
	})
}
