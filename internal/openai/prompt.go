// SPDX-License-Identifier: Apache-2.0

package openai

// Walk hands over the value of a top-level member, messages or prompt, as the client wrote it: its text, in pieces,
// and between them its media parts, by their index in Media. The bytes are the body's own. What closes the value is
// left out, since a longer prompt of the same beginning goes on there.
func (e *Envelope) Walk(name string, text func([]byte), media func(i int)) {
	for _, m := range e.members {
		if m.name != name {
			continue
		}
		from := m.value
		for i, p := range e.Media {
			if p.Start < m.value || p.End > m.end {
				continue
			}
			text(e.body[from:p.Start])
			media(i)
			from = p.End
		}
		text(e.body[from : m.end-1])
		return
	}
}
