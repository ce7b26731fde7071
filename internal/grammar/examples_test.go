// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"fmt"
	"strings"
	"testing"
)

// wide is an object of n members.
func wide(n int, required bool, member string) string {
	var props, names []string
	for i := range n {
		props = append(props, fmt.Sprintf(`"field_%d":%s`, i, member))
		names = append(names, fmt.Sprintf(`"field_%d"`, i))
	}
	s := `{"type":"object","properties":{` + strings.Join(props, ",") + `},"additionalProperties":false`
	if required {
		s += `,"required":[` + strings.Join(names, ",") + `]`
	}
	return s + `}`
}

// words lists n strings.
func words(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`"w%d"`, i)
	}
	return strings.Join(out, ",")
}

// examples are schemas as people write them, and an answer to each.
var examples = []struct{ name, schema, answer string }{
	{"steps of a calculation", `{"type":"object","properties":{"steps":{"type":"array","items":{"type":"object","properties":
		{"explanation":{"type":"string"},"output":{"type":"string"}},"required":["explanation","output"],"additionalProperties":false}},
		"final_answer":{"type":"string"}},"required":["steps","final_answer"],"additionalProperties":false}`,
		`{"steps":[{"explanation":"a","output":"b"}],"final_answer":"x = 1"}`},
	{"user interface", `{"type":"object","properties":{"type":{"type":"string","enum":["div","button","header","section","field","form"]},
		"label":{"type":"string"},"children":{"type":"array","items":{"$ref":"#"}},"attributes":{"type":"array","items":{"type":"object",
		"properties":{"name":{"type":"string"},"value":{"type":"string"}},"required":["name","value"],"additionalProperties":false}}},
		"required":["type","label","children","attributes"],"additionalProperties":false}`,
		`{"type":"form","label":"","children":[{"type":"div","label":"","children":[],"attributes":[]}],"attributes":[{"name":"a","value":"b"}]}`},
	{"linked list", `{"type":"object","properties":{"linked_list":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":
		{"value":{"type":"number"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"],
		"additionalProperties":false}},"required":["linked_list"],"additionalProperties":false}`,
		`{"linked_list":{"value":1,"next":{"value":2,"next":null}}}`},
	{"tree", `{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"left":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/t"}]},
		"value":{},"right":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/t"}]}},"required":["value"]}}}`, `{"left":{"value":[1]},"value":{"a":1},"right":null}`},
	{"syntax tree", `{"$ref":"#/$defs/e","$defs":{"e":{"anyOf":[{"$ref":"#/$defs/num"},{"$ref":"#/$defs/bin"},{"$ref":"#/$defs/neg"},{"$ref":"#/$defs/call"}]},
		"num":{"type":"object","properties":{"type":{"const":"num"},"value":{"type":"number"}},"required":["type","value"]},
		"bin":{"type":"object","properties":{"type":{"const":"bin"},"op":{"enum":["+","-"]},"left":{"$ref":"#/$defs/e"},"right":{"$ref":"#/$defs/e"}},"required":["type","op","left","right"]},
		"neg":{"type":"object","properties":{"type":{"const":"neg"},"of":{"$ref":"#/$defs/e"}},"required":["type","of"]},
		"call":{"type":"object","properties":{"type":{"const":"call"},"name":{"type":"string"},"args":{"type":"array","items":{"$ref":"#/$defs/e"}}},"required":["type","name","args"]}}}`,
		`{"type":"bin","op":"+","left":{"type":"neg","of":{"type":"num","value":1}},"right":{"type":"call","name":"f","args":[]}}`},
	{"syntax tree whose type comes last", `{"$ref":"#/$defs/e","$defs":{"e":{"oneOf":[{"$ref":"#/$defs/num"},{"$ref":"#/$defs/add"},{"$ref":"#/$defs/mul"}]},
		"num":{"type":"object","properties":{"value":{"type":"number"},"type":{"const":"num"}},"required":["type","value"]},
		"add":{"type":"object","properties":{"left":{"$ref":"#/$defs/e"},"right":{"$ref":"#/$defs/e"},"type":{"const":"add"}},"required":["type","left","right"]},
		"mul":{"type":"object","properties":{"left":{"$ref":"#/$defs/e"},"right":{"$ref":"#/$defs/e"},"type":{"const":"mul"}},"required":["type","left","right"]}}}`,
		`{"left":{"value":1,"type":"num"},"right":{"left":{"value":1,"type":"num"},"right":{"value":1,"type":"num"},"type":"mul"},"type":"add"}`},
	{"filter", `{"$ref":"#/$defs/f","$defs":{"f":{"anyOf":[
		{"type":"object","properties":{"and":{"type":"array","items":{"$ref":"#/$defs/f"}}},"required":["and"],"additionalProperties":false},
		{"type":"object","properties":{"or":{"type":"array","items":{"$ref":"#/$defs/f"}}},"required":["or"],"additionalProperties":false},
		{"type":"object","properties":{"not":{"$ref":"#/$defs/f"}},"required":["not"],"additionalProperties":false},
		{"type":"object","properties":{"field":{"type":"string"},"op":{"enum":["eq","lt","gt"]},"value":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"}]}},"required":["field","op","value"]}]}}}`,
		`{"and":[{"not":{"field":"a","op":"eq","value":1}},{"or":[]}]}`},
	{"pydantic, with a union told by kind", `{"$defs":{"Cat":{"properties":{"kind":{"const":"cat","default":"cat","title":"Kind","type":"string"},"lives":{"title":"Lives","type":"integer"}},"title":"Cat","type":"object"},
		"Dog":{"properties":{"kind":{"enum":["dog","hound"],"title":"Kind","type":"string"},"friends":{"items":{"anyOf":[{"$ref":"#/$defs/Cat"},{"$ref":"#/$defs/Dog"}]},"title":"Friends","type":"array"}},"required":["kind","friends"],"title":"Dog","type":"object"}},
		"properties":{"name":{"title":"Name","type":"string"},"age":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null,"title":"Age"},
		"pet":{"anyOf":[{"$ref":"#/$defs/Dog"},{"$ref":"#/$defs/Cat"}]},"tags":{"additionalProperties":{"type":"string"},"title":"Tags","type":"object"}},
		"required":["name","pet"],"title":"Person","type":"object"}`,
		`{"name":"n","age":null,"pet":{"kind":"hound","friends":[{"kind":"cat","lives":9}]},"tags":{"a":"b"}}`},
	{"any JSON, spelled out", `{"$ref":"#/$defs/j","$defs":{"j":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},{"type":"null"},
		{"type":"array","items":{"$ref":"#/$defs/j"}},{"type":"object","additionalProperties":{"$ref":"#/$defs/j"}}]}}}`, `[{"a":[1,null]}]`},
	{"recursive, with extra members", `{"type":"object","properties":{"child":{"$ref":"#"},"name":{"type":"string"}},"additionalProperties":true}`,
		`{"child":{"child":{"x":[]},"name":"n"},"y":{"child":1}}`},
	{"branches that are not told apart, not recursive", `{"anyOf":[{"type":"object","properties":{"name":{"type":"string"},"address":{"type":"object","properties":{"street":{"type":"string"}}}}},
		{"type":"object","properties":{"name":{"type":"string"},"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}},"staff":{"type":"array","items":{"type":"string"}}}}]}`,
		`{"name":"n","address":{"street":"s","city":"c"},"staff":[]}`},
	{"nullable recursion", `{"type":["object","null"],"properties":{"next":{"$ref":"#"},"items":{"type":["array","null"],"items":{"$ref":"#"}}}}`,
		`{"next":{"next":null},"items":[null,{}]}`},
	{"thirty required members", wide(30, true, `{"type":"string","maxLength":1000}`), ``},
	{"thirty optional members", wide(30, false, `{"anyOf":[{"type":"string"},{"type":"null"}]}`), `{"field_3":null,"field_29":"x"}`},
	{"a hundred optional members that nest", wide(100, false, wide(10, false, `{"type":"array","items":{"type":"number"},"maxItems":100}`)), `{"field_99":{"field_9":[1]}}`},
	{"many values", `{"type":"array","items":{"enum":[` + words(1000) + `]}}`, `["w0","w12","w999"]`},
	{"a matrix", `{"type":"array","items":{"type":"array","items":{"type":"number"},"minItems":3,"maxItems":3},"maxItems":1000}`, `[[1,2,3]]`},
}

func TestExamplesAreTaken(t *testing.T) {
	for _, x := range examples {
		g, err := FromSchema([]byte(x.schema))
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if x.answer != "" && !newExact(t, g).takes(x.answer) {
			t.Errorf("%s: does not take %s\n%s", x.name, x.answer, g)
		}
	}
}

func BenchmarkFromSchema(b *testing.B) {
	for _, x := range examples {
		b.Run(strings.ReplaceAll(x.name, " ", "_"), func(b *testing.B) {
			for range b.N {
				if _, err := FromSchema([]byte(x.schema)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
