// SPDX-License-Identifier: Apache-2.0

package openai

// TextAssembler turns the bytes of tokens into text that can be sent at once: whole characters only,
// and nothing that may turn out to belong to a stop string. What it returns does not depend on how
// the bytes are cut into tokens.
//
// Bytes that cannot become UTF-8 are replaced by U+FFFD, one for each maximal part of a character,
// as vLLM's tokenizers do.
type TextAssembler struct {
	stops []matcher
	tail  []byte // start of a character, at most 3 bytes
	held  []byte // whole characters that may be the start of a stop string
	stop  string // the stop string that was found
}

// NewTextAssembler returns an assembler for one answer that ends at the first of stops.
func NewTextAssembler(stops []string) *TextAssembler {
	a := &TextAssembler{}
	for _, s := range stops {
		if s != "" {
			a.stops = append(a.stops, newMatcher(s))
		}
	}
	return a
}

// Stop returns the stop string that was found, "" if none was.
func (a *TextAssembler) Stop() string { return a.stop }

// Add takes the bytes of a token and returns the text that is certain. Once stopped is true a stop
// string is complete: the text ends before it, and later tokens add nothing. The stop string that
// ends first counts; of several that end at once, the longest.
func (a *TextAssembler) Add(token []byte) (text string, stopped bool) {
	return a.take(append(a.tail, token...), false)
}

// Flush returns what was held back. It ends the answer.
func (a *TextAssembler) Flush() string {
	text, stopped := a.take(a.tail, true)
	if !stopped {
		text += string(a.held)
		a.held = nil
	}
	return text
}

// take works on all bytes that are not text yet. With last, a part of a character at the end will not
// be completed and counts as invalid.
func (a *TextAssembler) take(b []byte, last bool) (string, bool) {
	if a.stop != "" {
		return "", true
	}
	for len(b) > 0 {
		n, valid, partial := character(b)
		if partial && !last {
			break
		}
		char := b[:n]
		if !valid {
			char = []byte("\uFFFD")
		}
		a.held = append(a.held, char...)
		b = b[n:]
		if a.match(char) {
			text := string(a.held[:len(a.held)-len(a.stop)])
			a.held, a.tail = nil, nil
			return text, true
		}
	}
	a.tail = append([]byte(nil), b...)
	keep := 0
	for i := range a.stops {
		keep = max(keep, a.stops[i].state)
	}
	sure := len(a.held) - keep
	text := string(a.held[:sure])
	a.held = append(a.held[:0], a.held[sure:]...)
	return text, false
}

// match feeds a character to every matcher and sets stop to the longest stop string that it ends.
func (a *TextAssembler) match(char []byte) bool {
	for i := range a.stops {
		if m := &a.stops[i]; m.feed(char) && len(m.word) > len(a.stop) {
			a.stop = m.word
		}
	}
	return a.stop != ""
}

// matcher finds a word in a stream of bytes (Knuth-Morris-Pratt), so that a byte costs the same
// however long the word is.
type matcher struct {
	word  string
	fail  []int // fail[i]: length of the longest proper border of word[:i+1]
	state int   // bytes of word that the stream ends with
}

// newMatcher builds the table of borders: where to go on when a byte does not fit, without looking
// back at the stream.
func newMatcher(word string) matcher {
	m := matcher{word: word, fail: make([]int, len(word))}
	for i := 1; i < len(word); i++ {
		k := m.fail[i-1]
		for k > 0 && word[i] != word[k] {
			k = m.fail[k-1]
		}
		if word[i] == word[k] {
			k++
		}
		m.fail[i] = k
	}
	return m
}

// feed takes bytes and says whether the last one completes the word. A complete word is the end of
// the stream.
func (m *matcher) feed(b []byte) bool {
	for _, c := range b {
		for m.state > 0 && (m.state == len(m.word) || m.word[m.state] != c) {
			m.state = m.fail[m.state-1]
		}
		if m.word[m.state] == c {
			m.state++
		}
	}
	return m.state == len(m.word)
}

// character looks at the character that b begins with. If it is valid, n is its length. If not, n is
// the length of the maximal part of a character, at least 1; partial says that b ends before it could
// become valid or not (Unicode 17, table 3-7).
func character(b []byte) (n int, valid, partial bool) {
	lo, hi, more := byte(0x80), byte(0xBF), 0
	switch c := b[0]; {
	case c < 0x80:
		return 1, true, false
	case c < 0xC2 || c > 0xF4:
		return 1, false, false
	case c < 0xE0:
		more = 1
	case c < 0xF0:
		more = 2
	default:
		more = 3
	}
	switch b[0] {
	case 0xE0:
		lo = 0xA0
	case 0xED:
		hi = 0x9F
	case 0xF0:
		lo = 0x90
	case 0xF4:
		hi = 0x8F
	}
	for n = 1; n <= more; n++ {
		if n == len(b) {
			return n, false, true
		}
		if b[n] < lo || b[n] > hi {
			return n, false, false
		}
		lo, hi = 0x80, 0xBF
	}
	return n, true, false
}
