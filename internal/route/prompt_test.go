// SPDX-License-Identifier: Apache-2.0

package route

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// blocksOf names the beginnings of a text.
func blocksOf(salt, text string) []uint64 {
	p := NewPrompt([]byte(salt))
	p.Text([]byte(text))
	return p.Blocks()
}

// common is how many blocks two prompts share.
func common(a, b []uint64) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestPromptDoesNotDependOnPieces: blocks are of the prompt, however it is handed over, and two prompts share
// what they have in common, in whole blocks.
func TestPromptDoesNotDependOnPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 5*BlockBytes).Draw(t, "text")
		whole, pieces := NewPrompt(nil), NewPrompt(nil)
		whole.Text(text)
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			pieces.Text(rest[:n])
			rest = rest[n:]
		}
		if !slices.Equal(whole.Blocks(), pieces.Blocks()) || len(whole.Blocks()) != len(text)/BlockBytes {
			t.Fatalf("%d bytes: blocks %x, in pieces %x", len(text), whole.Blocks(), pieces.Blocks())
		}
		if len(text) == 0 {
			return
		}
		at := rapid.IntRange(0, len(text)-1).Draw(t, "change")
		other := slices.Clone(text)
		other[at]++
		if got := common(whole.Blocks(), blocksOf("", string(other))); got != at/BlockBytes {
			t.Fatalf("changed at %d: %d blocks in common, want %d", at, got, at/BlockBytes)
		}
	})
}

// TestPromptImages: an image ends a block, counts in its full width (K03) and cannot be written as text.
func TestPromptImages(t *testing.T) {
	name := bytes.Repeat([]byte{7}, 32)
	show := func(name []byte, before, after string) []uint64 {
		p := NewPrompt(nil)
		p.Text([]byte(before))
		p.Image(name)
		p.Text([]byte(after))
		return p.Blocks()
	}
	a := show(name, "what is this?", "")
	if len(a) != 1 || common(a, show(name, "what is this?", "and what else?")) != 1 {
		t.Errorf("a conversation that goes on shares nothing: %x", a)
	}
	for i := range name {
		other := slices.Clone(name)
		other[i] ^= 1
		if common(a, show(other, "what is this?", "")) != 0 {
			t.Errorf("byte %d of the name does not count", i)
		}
	}
	if common(a, show(name, "what is that?", "")) != 0 {
		t.Error("the text before an image does not count")
	}
	text := NewPrompt(nil)
	text.Text(append(append([]byte("what is this?"), name...), make([]byte, 4*BlockBytes)...))
	if slices.Contains(text.Blocks(), a[0]) {
		t.Error("text reads like an image")
	}
	if common(show(name, "", ""), show(append([]byte("x"), name...), "", "")) != 0 || common(show(name, "x", ""), show(append([]byte("x"), name...), "", "")) != 0 {
		t.Error("where a name begins does not count")
	}
}

// TestPromptSalt: prompts of tenants that share nothing have no block in common.
func TestPromptSalt(t *testing.T) {
	long := string(make([]byte, 10*BlockBytes))
	for _, b := range blocksOf("a", long) {
		if slices.Contains(blocksOf("b", long), b) {
			t.Fatal("a block of two salts")
		}
	}
}

// TestPromptIsBounded: what comes behind MaxBlocks costs nothing.
func TestPromptIsBounded(t *testing.T) {
	p := NewPrompt(nil)
	p.Text(make([]byte, 2*MaxBlocks*BlockBytes))
	p.Image([]byte("x"))
	if got := len(p.Blocks()); got != MaxBlocks {
		t.Errorf("%d blocks, want %d", got, MaxBlocks)
	}
}
