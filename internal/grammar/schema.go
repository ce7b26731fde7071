// SPDX-License-Identifier: Apache-2.0

// Package grammar writes JSON schemas as grammars in llama.cpp's notation (GBNF), which its sampler holds
// an answer to. What a grammar cannot say, such as the range of a number, is refused by name: an answer
// that merely looks right would be worse.
//
// Members of an object come in the order of its schema, with no others unless additionalProperties says
// so. Annotations (title, description, default, examples) change nothing.
//
// The library follows each way to read an answer by itself, and where branches of a schema take the same values, one inside
// the other, these multiply without end. So what branches share is written once where they begin alike, and a schema that can
// be read in more than a fixed number of ways at once, by any answer, is refused.
package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits keep a schema from growing into a grammar that takes long to read.
const (
	maxRules  = 2000
	maxDepth  = 32
	maxRepeat = 1000
)

// AnyObject is the grammar of any JSON object.
var AnyObject = mustWrite(`{"type":"object"}`)

func mustWrite(schema string) string {
	g, err := FromSchema([]byte(schema))
	if err != nil {
		panic(err) // a constant of this package
	}
	return g
}

// FromSchema returns the grammar of a JSON schema, whose first rule is root. Errors name the place in the
// schema.
func FromSchema(schema []byte) (string, error) {
	v, err := parse(schema)
	if err != nil {
		return "", err
	}
	w := &writer{root: v, names: map[string]string{}, begins: map[*node]int{}, shapes: map[*node]*shape{}, same: map[string]string{}}
	w.opaque = map[string]*atom{"ws": nil, "string": {kind: 's'}, "number": {kind: 'n'}, "integer": {kind: 'n'}}
	w.rules = []rule{{name: "root", at: "#"}}
	body, err := w.value(v, "#", 0)
	if err != nil {
		return "", err
	}
	w.rules[0].body = body
	var out strings.Builder
	for _, r := range w.rules {
		fmt.Fprintf(&out, "%s ::= %s\n", r.name, r.body)
	}
	out.WriteString(basics)
	return out.String(), w.try(out.String())
}

// basics are the rules that all grammars share. White space is bounded: a model that has nothing to say
// would write it for ever.
const basics = `ws ::= | " " | "\n" [ \t]{0,20}
value ::= object | array | string | number | boolean | null
object ::= "{" ws ( string ":" ws value ( ws "," ws string ":" ws value )* ws )? "}"
array ::= "[" ws ( value ( ws "," ws value )* ws )? "]"
char ::= [^"\\\x7F\x00-\x1F] | "\\" ( ["\\bfnrt/] | "u" [0-9a-fA-F]{4} )
string ::= "\"" char* "\""
integer ::= "-"? ( "0" | [1-9] [0-9]{0,15} )
number ::= integer ( "." [0-9]{1,16} )? ( [eE] [-+]? [0-9]{1,3} )?
boolean ::= "true" | "false"
null ::= "null"
`

// node is a schema as it was read: members in order.
type node struct {
	kind    byte // '{', '[', or 0 for a literal
	names   []string
	members []*node // of an object by names, or of an array
	literal any     // string, json.Number, bool or nil
	raw     []byte
}

func (n *node) get(name string) *node {
	if n == nil || n.kind != '{' {
		return nil
	}
	if i := slices.Index(n.names, name); i >= 0 {
		return n.members[i]
	}
	return nil
}

// parse reads JSON and keeps the order of members.
func parse(text []byte) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return read(d, 0)
}

func read(d *json.Decoder, depth int) (*node, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return &node{literal: tok, raw: marshal(tok)}, nil
	}
	if depth == maxDepth {
		return nil, fmt.Errorf("more than %d levels", maxDepth)
	}
	n := &node{kind: byte(delim)}
	for d.More() {
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			n.names = append(n.names, name.(string)) // the decoder has seen to it
		}
		m, err := read(d, depth+1)
		if err != nil {
			return nil, err
		}
		n.members = append(n.members, m)
	}
	_, err = d.Token()
	return n, err
}

// marshal writes a literal of JSON, letters as they are.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // a literal never fails
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// rule is one line of a grammar, and the place in the schema that it is for.
type rule struct{ name, body, at string }

// writer turns nodes into rules.
type writer struct {
	root   *node
	rules  []rule
	names  map[string]string // rule of a $ref
	begins map[*node]int     // what ways has counted
	shapes map[*node]*shape  // of branches; nil while one is being read
	same   map[string]string // rule of a body
	opaque map[string]*atom  // rules that are one token, or nothing, to the trial
}

var errTooLarge = errors.New("the schema is too large")

// add makes a rule and returns its name. Equal bodies share one: what is the same twice is one way to read an answer.
func (w *writer) add(body, at string) (string, error) {
	if name, ok := w.same[body]; ok {
		return name, nil
	}
	name, err := w.reserve(at)
	if err != nil {
		return "", err
	}
	w.rules[len(w.rules)-1].body = body
	w.same[body] = name
	return name, nil
}

// reserve makes a rule whose body is not known yet.
func (w *writer) reserve(at string) (string, error) {
	if len(w.rules) == maxRules {
		return "", errTooLarge
	}
	name := "r" + strconv.Itoa(len(w.rules))
	w.rules = append(w.rules, rule{name: name, at: at})
	return name, nil
}

// token makes a rule that the trial takes for one token.
func (w *writer) token(body, at string, a atom) (string, error) {
	name, err := w.add(body, at)
	w.opaque[name] = &a
	return name, err
}

// fault says what is wrong at a place of the schema. The place, and texts and JSON among args, can be as long as
// the client made them, and are shortened.
func fault(at, format string, args ...any) error {
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			args[i] = short(v)
		case []byte:
			args[i] = short(string(v))
		}
	}
	return fmt.Errorf("%s: %s", short(at), fmt.Sprintf(format, args...))
}

// maxShown is how many characters an error repeats of one text.
const maxShown = 100

// short keeps both ends of a long text, as the end of a place says most.
func short(s string) string {
	r := []rune(s)
	if len(r) <= maxShown {
		return s
	}
	return string(r[:maxShown/2]) + "..." + string(r[len(r)-maxShown/2:])
}

// quote writes text as a literal of a grammar.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(text) {
		switch c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}
