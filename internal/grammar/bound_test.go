// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// chain is n definitions, of which each writes the next one; %s stands for a reference to it.
func chain(n int, link, end string) string {
	var s strings.Builder
	s.WriteString(`{"$ref":"#/$defs/a0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&s, `"a%d":%s,`, i, strings.ReplaceAll(link, "%s", fmt.Sprintf(`{"$ref":"#/$defs/a%d"}`, i+1)))
	}
	fmt.Fprintf(&s, `"a%d":%s}}`, n, end)
	return s.String()
}

// attacks are schemas whose readings double with what is nested, by what is to be found in the refusal.
var attacks = []struct{ schema, want string }{
	// arrays of arrays, the same twice but for the number of items
	{`{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"},"minItems":1}]}`, "#/anyOf/0"},
	{`{"oneOf":[{"type":"array","items":{"$ref":"#"},"maxItems":900},{"type":"array","items":{"$ref":"#"},"maxItems":901}]}`, "#/oneOf/0"},
	// one def calls the other, and both call themselves
	{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}},
		"b":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]},"maxItems":3}}}`, "#/$defs/b"},
	// a chain without recursion
	{chain(9, `{"anyOf":[{"type":"array","items":%s},{"type":"array","items":%s,"maxItems":7}]}`, `{"type":"null"}`), "#/$defs/a5/anyOf/0"},
	{chain(40, `{"anyOf":[{"type":"array","items":%s},{"type":"array","items":%s,"maxItems":7}]}`, `{"type":"null"}`), "anyOf/0"},
	// what doubles is many levels apart
	{strings.Replace(chain(20, `{"type":"array","items":%s}`, `{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"},"maxItems":7}]}`), `"null"`, ``, 1), "anyOf/0"},
	// objects: extra members, optional ones in any order, ones that tell only after what nests
	{`{"anyOf":[{"type":"object","additionalProperties":{"$ref":"#"}},{"type":"object","properties":{"a":{"$ref":"#"}}}]}`, "#/anyOf"},
	{`{"anyOf":[{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}},{"properties":{"b":{"$ref":"#"},"a":{"$ref":"#"}}}]}`, "#/anyOf/0"},
	{`{"anyOf":[{"properties":{"a":{"$ref":"#"},"t":{"const":1}},"required":["t"]},{"properties":{"a":{"$ref":"#"},"t":{"const":2}},"required":["t"]}]}`, "#/anyOf/0"},
	{`{"anyOf":[{"properties":{"t":{"enum":["x","y"]},"a":{"$ref":"#"}},"required":["t"]},{"properties":{"t":{"enum":["y","z"]},"a":{"$ref":"#"}},"required":["t"]}]}`, "#/anyOf/0"},
	{`{"anyOf":[{"properties":{"t":{"const":"x"},"a":{"$ref":"#"}}},{"properties":{"t":{"const":"y"},"a":{"$ref":"#"}}}]}`, "#/anyOf/0"},
	// nullable recursion, twice
	{`{"type":["array","null"],"items":{"anyOf":[{"$ref":"#"},{"type":["array","null"],"items":{"$ref":"#"},"maxItems":5}]}}`, "#/items/anyOf/1"},
	// anything, beside what is told: one reading more with every level
	{`{"anyOf":[{"type":"array","items":{"$ref":"#"}},{}]}`, "#/anyOf/0"},
	{`{"properties":{"a":{"anyOf":[{"$ref":"#"},true]}}}`, "a schema that says nothing"},
	// wide, not deep
	{`{"anyOf":[` + consts(maxReadings+1) + `]}`, fmt.Sprint(maxReadings, " ways")},
}

func TestNestedReadingsAreRefused(t *testing.T) {
	for _, a := range attacks {
		_, err := FromSchema([]byte(a.schema))
		if err == nil || !strings.Contains(err.Error(), a.want) || !strings.Contains(err.Error(), "branches must differ") {
			t.Errorf("%.150s: %v, want %q", a.schema, err, a.want)
		}
	}
}

// What there is too much of to go through is refused, too, after a bounded time.
func TestManyCombinationsAreRefused(t *testing.T) {
	const n = 11
	union := func(name string) string {
		var branches []string
		for i := range n { // each lacks another member, so that any set of branches is left by some answer
			var props []string
			for k := range n {
				if k != i {
					props = append(props, fmt.Sprintf(`"%s%d":{"type":"null"}`, name, k))
				}
			}
			branches = append(branches, `{"properties":{`+strings.Join(props, ",")+`}}`)
		}
		return `{"anyOf":[` + strings.Join(branches, ",") + `]}`
	}
	if _, err := FromSchema([]byte(union("a"))); err != nil {
		t.Error(err)
	}
	var props []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		props = append(props, `"`+name+`":`+union(name))
	}
	_, err := FromSchema([]byte(`{"properties":{` + strings.Join(props, ",") + `}}`))
	if err == nil || !strings.Contains(err.Error(), "too many ways to be sure") || !strings.Contains(err.Error(), "#/properties/") {
		t.Error(err)
	}
}

// drawSchema draws a schema of one of the kinds low to high, whose parts overlap often and come back to the definitions a, b
// and c.
func drawSchema(t *rapid.T, low, high int) string {
	pick := func(from ...string) string { return rapid.SampledFrom(from).Draw(t, "pick") }
	part := func() string { return drawSchema(t, 0, 5) }
	switch rapid.IntRange(low, high).Draw(t, "kind") {
	case 0:
		return pick(`{"type":"null"}`, `{"type":"string"}`, `{"type":"string","maxLength":3}`, `{"const":"a"}`, `{"enum":["a","b",1,[2]]}`, `{}`)
	case 1, 2:
		return `{"$ref":"#/$defs/` + pick("a", "b", "c") + `"}`
	case 3, 4:
		return `{"type":"array","items":` + part() + pick(``, `,"maxItems":3`, `,"minItems":1`) + `}`
	case 5:
		var props, required []string
		for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "ab"}), 0, 3, rapid.ID).Draw(t, "names") {
			props = append(props, `"`+n+`":`+part())
			if rapid.Bool().Draw(t, "required") {
				required = append(required, `"`+n+`"`)
			}
		}
		return `{"type":"object","properties":{` + strings.Join(props, ",") + `},"required":[` + strings.Join(required, ",") +
			`],"additionalProperties":` + pick(`false`, `false`, `{"$ref":"#/$defs/a"}`) + `}`
	}
	return `{"anyOf":[` + drawSchema(t, 3, 5) + `,` + drawSchema(t, 3, 5) + `]}`
}

// perLetter is how many stacks of letters there may be for a reading of tokens: white space that may come or not, before
// any of the letters that a string or a number may go on with.
const perLetter = 8

// Whatever a model writes, the stacks that the library keeps for a schema that is taken are bounded.
func TestStacksStayBounded(t *testing.T) {
	taken, deepest := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		schema := fmt.Sprintf(`{"$ref":"#/$defs/a","$defs":{"a":%s,"b":%s,"c":%s}}`, drawSchema(t, 3, 8), drawSchema(t, 3, 8), drawSchema(t, 3, 8))
		g, err := FromSchema([]byte(schema))
		if err != nil {
			return
		}
		taken++
		e := newExact(t, g)
		nested := 0
		for range 200 {
			next := e.letters()
			if len(next) == 0 {
				break
			}
			r := next[0] // what opens comes first
			if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
				r = rapid.SampledFrom(next).Draw(t, "letter")
			}
			if r == '[' || r == '{' {
				nested++
			}
			e.accept(r)
			if n := len(e.stacks); n > perLetter*maxReadings {
				t.Fatalf("%s: %d stacks", schema, n)
			}
		}
		deepest = max(deepest, nested)
	})
	if taken == 0 || deepest < 30 {
		t.Errorf("%d schemas were taken, and at most %d levels opened", taken, deepest)
	}
}
