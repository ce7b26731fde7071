// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// definition is a rule of a grammar as it was read: alternatives of sequences.
type definition struct {
	name string
	alts [][]item
}

// item is one element of a sequence, taken least to most times; most is -1 for no bound.
type item struct {
	kind        byte   // '"' text, '[' characters, 'r' a rule, '(' a group
	text        string // of '"' and 'r'
	set         charset
	group       [][]item
	least, most int
}

// charset is a class of characters.
type charset struct {
	not    bool
	ranges [][2]rune
}

// reader reads the notation. It knows what this package writes.
type reader struct {
	text string
	err  error
}

// readGrammar reads rules, one a line.
func readGrammar(text string) ([]definition, error) {
	var out []definition
	for line := range strings.Lines(text) {
		name, body, ok := strings.Cut(strings.TrimRight(line, "\n"), " ::= ")
		if !ok {
			return nil, fmt.Errorf("grammar: no rule in %q", line)
		}
		r := &reader{text: body}
		alts := r.alternatives()
		if r.err == nil && r.text != "" {
			r.err = fmt.Errorf("grammar: cannot read %q", r.text)
		}
		if r.err != nil {
			return nil, fmt.Errorf("rule %s: %w", name, r.err)
		}
		out = append(out, definition{name, alts})
	}
	return out, nil
}

func (r *reader) alternatives() [][]item {
	out := [][]item{r.sequence()}
	for r.take("|") {
		out = append(out, r.sequence())
	}
	return out
}

func (r *reader) sequence() (out []item) {
	for r.err == nil {
		r.text = strings.TrimLeft(r.text, " ")
		if r.text == "" || r.text[0] == '|' || r.text[0] == ')' {
			break
		}
		it := r.item()
		it.least, it.most = r.times()
		out = append(out, it)
	}
	return out
}

// take skips blanks, and s if it comes next.
func (r *reader) take(s string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(r.text, " "), s)
	if ok {
		r.text = rest
	}
	return ok
}

var errUnended = errors.New("grammar: an element does not end")

func (r *reader) item() item {
	switch {
	case r.take("("):
		it := item{kind: '(', group: r.alternatives()}
		if !r.take(")") {
			r.err = errUnended
		}
		return it
	case r.take(`"`):
		var b strings.Builder
		for r.err == nil && !strings.HasPrefix(r.text, `"`) {
			b.WriteRune(r.char())
		}
		r.text = strings.TrimPrefix(r.text, `"`)
		return item{kind: '"', text: b.String()}
	case r.take("["):
		return item{kind: '[', set: r.class()}
	}
	n := strings.IndexFunc(r.text, func(c rune) bool { return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') })
	if n < 0 {
		n = len(r.text)
	}
	if n == 0 {
		r.err = fmt.Errorf("grammar: cannot read %q", r.text)
		return item{}
	}
	it := item{kind: 'r', text: r.text[:n]}
	r.text = r.text[n:]
	return it
}

func (r *reader) class() charset {
	c := charset{}
	if rest, ok := strings.CutPrefix(r.text, "^"); ok {
		c.not, r.text = true, rest
	}
	for r.err == nil && !strings.HasPrefix(r.text, "]") {
		low := r.char()
		high := low
		if len(r.text) > 1 && r.text[0] == '-' && r.text[1] != ']' {
			r.text = r.text[1:]
			high = r.char()
		}
		c.ranges = append(c.ranges, [2]rune{low, high})
	}
	r.text = strings.TrimPrefix(r.text, "]")
	return c
}

// char reads one character, which may be escaped.
func (r *reader) char() rune {
	c, n := utf8.DecodeRuneInString(r.text)
	if n == 0 {
		r.err = errUnended
		return 0
	}
	r.text = r.text[n:]
	if c != '\\' {
		return c
	}
	c, n = utf8.DecodeRuneInString(r.text)
	r.text = r.text[n:]
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'x':
		v, err := strconv.ParseUint(r.text[:min(2, len(r.text))], 16, 8)
		if err != nil {
			r.err = err
			return 0
		}
		r.text = r.text[2:]
		return rune(v)
	}
	return c
}

// times reads how often an element is taken.
func (r *reader) times() (least, most int) {
	switch {
	case r.take("*"):
		return 0, -1
	case r.take("?"):
		return 0, 1
	case !r.take("{"):
		return 1, 1
	}
	body, rest, ok := strings.Cut(r.text, "}")
	low, high, pair := strings.Cut(body, ",")
	least, err := strconv.Atoi(low)
	most = least
	if pair {
		most = -1
	}
	if high != "" && err == nil {
		most, err = strconv.Atoi(high)
	}
	if !ok || err != nil {
		r.err = errUnended
	}
	r.text = rest
	return least, most
}
