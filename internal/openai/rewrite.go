// SPDX-License-Identifier: Apache-2.0

package openai

import "slices"

// Field is a top-level member to be set.
type Field struct {
	Name  string
	Value []byte // JSON
}

// Edit says how a body is to differ from the client's.
type Edit struct {
	// Part returns what stands in the place of media part i, in pieces; nil leaves it as it is. It may be
	// nil itself.
	Part func(i int) [][]byte
	Set  []Field  // in the place of members of these names, or behind all others
	Drop []string // members to leave out
}

// Rewrite returns the body with the edit made, in pieces, most of which lie in the body: every byte that
// the edit does not concern is the client's.
func (e *Envelope) Rewrite(ed Edit) [][]byte {
	out := [][]byte{e.body[:e.open]}
	set := slices.Clone(ed.Set)
	last := -1 // the member that was written last
	for i, m := range e.members {
		if slices.Contains(ed.Drop, m.name) {
			continue
		}
		switch {
		case i == 0:
			out = append(out, e.body[e.open:m.start])
		case last == i-1:
			out = append(out, e.body[e.members[last].end:m.start])
		case last >= 0:
			out = append(out, comma)
		}
		last = i
		if j := slices.IndexFunc(set, func(f Field) bool { return f.Name == m.name }); j >= 0 {
			out = append(out, e.body[m.start:m.value], set[j].Value)
			set = slices.Delete(set, j, j+1)
			continue
		}
		out = e.appendMember(out, m, ed.Part)
	}
	for _, f := range set {
		if last >= 0 {
			out = append(out, comma)
		}
		out = append(out, append(AppendString(nil, f.Name), ':'), f.Value)
		last = len(e.members)
	}
	if n := len(e.members); n > 0 {
		return append(out, e.body[e.members[n-1].end:])
	}
	return append(out, e.body[e.open:])
}

var comma = []byte(",")

// appendMember appends a member with its media parts replaced.
func (e *Envelope) appendMember(out [][]byte, m member, part func(int) [][]byte) [][]byte {
	from := m.start
	for i, p := range e.Media {
		if part == nil || p.Start < m.start || p.End > m.end {
			continue
		}
		if with := part(i); with != nil {
			out = append(append(out, e.body[from:p.Start]), with...)
			from = p.End
		}
	}
	return append(out, e.body[from:m.end])
}

// Part returns media part i, in pieces, with url (a JSON string in pieces) in the place of its URL unless it is
// nil, and with the name uuid, in the place of the client's, unless that is "".
func (e *Envelope) Part(i int, url [][]byte, uuid string) [][]byte {
	p := &e.Media[i]
	var out [][]byte
	from := p.Start
	replace := func(s span, with ...[]byte) {
		out = append(append(out, e.body[from:s.start]), with...)
		from = s.end
	}
	var name []byte
	if uuid != "" && p.UUID != uuid {
		name = AppendString(nil, uuid)
	}
	inPlace := name != nil && p.uuid.end > 0 // null, or of no use
	if inPlace && p.uuid.start < p.url.start {
		replace(p.uuid, name)
	}
	if url != nil && p.url.end > 0 {
		replace(p.url, url...)
	}
	switch {
	case inPlace && p.uuid.start >= p.url.start:
		replace(p.uuid, name)
	case name != nil && !inPlace:
		replace(span{p.End - 1, p.End - 1}, []byte(`,"uuid":`), name)
	}
	return append(out, e.body[from:p.End])
}
