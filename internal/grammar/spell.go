// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxSpelled is how much of a name is told apart letter by letter: the library reads a group within a group for each.
const maxSpelled = 32

// spelling is a tree of texts by their letters.
type spelling struct {
	ends bool // a text ends here
	next map[rune]*spelling
}

// add notes a text, or with ends false one that goes on in a way that nothing here spells.
func (s *spelling) add(text string, ends bool) {
	for _, r := range text {
		if s.next == nil {
			s.next = map[rune]*spelling{}
		}
		if s.next[r] == nil {
			s.next[r] = &spelling{}
		}
		s = s.next[r]
	}
	s.ends = s.ends || ends
}

func (s *spelling) letters() []rune { return slices.Sorted(maps.Keys(s.next)) }

// all returns the texts, each behind head.
func (s *spelling) all(head string) (out []string) {
	if s.ends {
		out = append(out, quote(head))
	}
	for _, r := range s.letters() {
		out = append(out, s.next[r].all(head+string(r))...)
	}
	return out
}

// choice writes the texts of s, each behind head, such that a letter tells which are left.
func (s *spelling) choice(head string, depth int) string {
	for !s.ends && len(s.next) == 1 {
		for r, next := range s.next {
			head += string(r)
			s = next
		}
	}
	if len(s.next) == 0 || depth == maxSpelled {
		return strings.Join(s.all(head), " | ")
	}
	var parts []string
	if s.ends {
		parts = append(parts, "") // nothing comes first: after a bar, the notation reads on in the next line
	}
	for _, r := range s.letters() {
		parts = append(parts, s.next[r].choice(string(r), depth+1))
	}
	group := "( " + strings.Join(parts, " | ") + " )"
	if head == "" {
		return group
	}
	return quote(head) + " " + group
}

// others writes all strings but those of s, without the quotes. Up to where one differs from them it holds no escapes,
// which could spell the same.
func (s *spelling) others(depth int) string {
	var parts []string
	if !s.ends {
		parts = append(parts, "")
	}
	class := strings.Builder{}
	for _, r := range s.letters() {
		if r < 0x80 {
			fmt.Fprintf(&class, `\x%02X`, r)
		} else {
			class.WriteRune(r)
		}
	}
	parts = append(parts, `[^"\\\x7F\x00-\x1F`+class.String()+`] char*`)
	if depth < maxSpelled {
		for _, r := range s.letters() {
			parts = append(parts, quote(string(r))+" "+s.next[r].others(depth+1))
		}
	}
	return "( " + strings.Join(parts, " | ") + " )"
}

// keysBeside writes the name of any member that is not among names.
func (w *writer) keysBeside(names []string, at string) (string, error) {
	if len(names) == 0 {
		return "string", nil
	}
	s, a := &spelling{}, atom{kind: 'k', texts: map[string]bool{}}
	for _, name := range names {
		text := string(marshal(name))
		a.texts[text] = true
		spelled, _, escaped := strings.Cut(text[1:len(text)-1], `\`)
		s.add(spelled, !escaped)
	}
	return w.token(`"\"" `+s.others(0)+` "\""`, at, a)
}
