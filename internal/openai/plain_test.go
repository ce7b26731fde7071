// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"testing"
)

// TestPlain: every byte stops in every place, or does not, as it should.
func TestPlain(t *testing.T) {
	first := func(b []byte, stops func(c byte) bool) int {
		for i, c := range b {
			if stops(c) {
				return i
			}
		}
		return len(b)
	}
	quoting := func(c byte) bool { return c == '"' || c == '\\' }
	odd := func(c byte) bool { return quoting(c) || c < ' ' || c >= 0x80 }
	for at := range 300 {
		for c := range 256 {
			b := bytes.Repeat([]byte("a~ !#[]\x7f"), 40)[at%3 : 300]
			b[at%len(b)] = byte(c)
			b[(at+at/2)%len(b)] = "a\"\\\x1f\x80"[c%5] // another, which may come first
			if got, want := plain(b), first(b, odd); got != want {
				t.Fatalf("byte %#x at %d: plain says %d, want %d", c, at, got, want)
			}
			if got, want := unquoted(b), first(b, quoting); got != want {
				t.Fatalf("byte %#x at %d: unquoted says %d, want %d", c, at, got, want)
			}
			if got, want := words(b, space), first(b, odd); got != want {
				t.Fatalf("byte %#x at %d: words says %d, want %d", c, at, got, want)
			}
			if got, want := words(b, 0), first(b, quoting); got != want {
				t.Fatalf("byte %#x at %d: words, with quotes alone, says %d, want %d", c, at, got, want)
			}
		}
	}
}

// TestWindows: whole windows are passed, and none in which anything stops.
func TestWindows(t *testing.T) {
	b := bytes.Repeat([]byte("a~ !#[]\x7f"), 3*windowBytes/8)
	for at := range b {
		for _, c := range []byte("\"\\\x1f\x80\xff") {
			was := b[at]
			b[at] = c
			whole, quoting := at/windowBytes*windowBytes, len(b)
			if c == '"' || c == '\\' {
				quoting = whole
			}
			if got := windows(b, ' '); got != whole {
				t.Fatalf("byte %#x at %d: %d, want %d", c, at, got, whole)
			}
			if got := windows(b, -128); got != quoting {
				t.Fatalf("byte %#x at %d: %d for quotes alone, want %d", c, at, got, quoting)
			}
			b[at] = was
		}
	}
}

func BenchmarkPlain(b *testing.B) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 256<<10/16)
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			plain(text)
		}
	})
	b.Run("windows", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			windows(text, ' ')
		}
	})
}
