// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// assemble feeds whole in tokens of n bytes and returns the pieces.
func assemble(t testing.TB, whole []byte, n int, stops ...string) (pieces []string, stop string) {
	t.Helper()
	a := NewTextAssembler(stops)
	for rest := whole; len(rest) > 0; {
		k := min(n, len(rest))
		text, stopped := a.Add(rest[:k])
		pieces = append(pieces, text)
		rest = rest[k:]
		if stopped {
			if more, _ := a.Add([]byte("more")); more != "" || a.Flush() != "" {
				t.Fatalf("text after a stop string: %q", more)
			}
			return pieces, a.Stop()
		}
	}
	pieces = append(pieces, a.Flush())
	return pieces, a.Stop()
}

func TestAssembleUTF8(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		for n := 1; n <= len(in); n++ {
			pieces, _ := assemble(t, []byte(in), n)
			if got := strings.Join(pieces, ""); got != want {
				t.Errorf("%q by %d: got %q, want %q", in, n, got, want)
			}
			for _, p := range pieces {
				if !utf8.ValidString(p) {
					t.Errorf("%q by %d: piece %q is no text", in, n, p)
				}
			}
		}
	}
	f("한국어 中文 é 👩‍👩‍👧", "한국어 中文 é 👩‍👩‍👧")
	// The examples of the Unicode Standard, tables 3-8 to 3-11.
	f("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", strings.Repeat("\uFFFD", 8)+"A")
	f("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", strings.Repeat("\uFFFD", 8)+"A")
	f("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", strings.Repeat("\uFFFD", 5)+"A"+strings.Repeat("\uFFFD", 2)+"B")
	f("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", strings.Repeat("\uFFFD", 4)+"A")
	// Cut off at the end: one mark for the part that is there.
	f("a\xF0\x9F\x98", "a\uFFFD")
	f("a\xE2", "a\uFFFD")
}

func TestAssembleSendsAtOnce(t *testing.T) {
	a := NewTextAssembler([]string{"stop"})
	f := func(token, want string) {
		t.Helper()
		if got, stopped := a.Add([]byte(token)); got != want || stopped {
			t.Errorf("%q: got %q, want %q", token, got, want)
		}
	}
	f("a", "a")
	f("\xC3", "")
	f("\xA9b", "éb")
	f("s", "")
	f("st", "s")
	f("o", "")
	f("x", "stox")
	f("", "")
}

func TestAssembleStop(t *testing.T) {
	f := func(in, want, stop string, stops ...string) {
		t.Helper()
		for n := 1; n <= len(in); n++ {
			pieces, got := assemble(t, []byte(in), n, stops...)
			if text := strings.Join(pieces, ""); text != want || got != stop {
				t.Errorf("%q by %d: got %q and %q, want %q and %q", in, n, text, got, want, stop)
			}
		}
	}
	f("one. two", "one", ".", ".")
	f("one. two", "one. two", "", "three", "")
	f("aaab", "a", "aab", "aab")
	f("ababac", "ab", "abac", "abac")
	f("abcd", "a", "bc", "abcd", "bc") // what ends first counts
	f("abcd", "", "abcd", "cd", "abcd")
	f("한국", "한", "국", "국")
	f("x\xFFy", "x", "\uFFFDy", "\uFFFDy")
	f("x\xE2", "x", "\uFFFD", "\uFFFD")
	f("stop", "", "stop", "stop")
	f("sto", "sto", "", "stop")
}

// FuzzAssemble checks that the text does not depend on where tokens end, is whole characters, and
// stops where a search in the whole text stops.
func FuzzAssemble(f *testing.F) {
	f.Add([]byte("한국어 \xE1\x80\xE2 stop"), uint8(1), "st", "op")
	f.Add([]byte("ababac"), uint8(2), "abac", "bab")
	f.Fuzz(func(t *testing.T, whole []byte, n uint8, s1, s2 string) {
		step := max(1, int(n))
		all, _ := assemble(t, whole, len(whole)+1)
		text := strings.Join(all, "")
		if utf8.Valid(whole) && text != string(whole) {
			t.Fatalf("got %q, want %q", text, whole)
		}
		if !utf8.ValidString(s1) || !utf8.ValidString(s2) {
			return
		}
		pieces, stop := assemble(t, whole, step, s1, s2)
		for _, p := range pieces {
			if !utf8.ValidString(p) {
				t.Fatalf("piece %q", p)
			}
		}
		want, wantStop := cutAtStop(text, s1, s2)
		if got := strings.Join(pieces, ""); got != want || stop != wantStop {
			t.Fatalf("%q: got %q and %q, want %q and %q", text, got, stop, want, wantStop)
		}
	})
}

// cutAtStop is the plain meaning of stop strings, on the whole text.
func cutAtStop(text string, stops ...string) (string, string) {
	for end := range len(text) + 1 {
		best := ""
		for _, s := range stops {
			if s != "" && len(s) > len(best) && strings.HasSuffix(text[:end], s) {
				best = s
			}
		}
		if best != "" {
			return text[:end-len(best)], best
		}
	}
	return text, ""
}
