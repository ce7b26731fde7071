// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"afterimage/internal/admit"
)

// TestNH holds a block against the definition, in numbers of any size.
func TestNH(t *testing.T) {
	k := newNHKey()
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var b [nhBlock]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		var got [32]byte
		k.block(&b, got[:])
		for shift := range 2 {
			sum := new(big.Int)
			for i := 0; i < nhBlock/8; i += 2 {
				x := binary.LittleEndian.Uint64(b[8*i:]) + k[i+2*shift]
				y := binary.LittleEndian.Uint64(b[8*i+8:]) + k[i+1+2*shift]
				sum.Add(sum, new(big.Int).Mul(new(big.Int).SetUint64(x), new(big.Int).SetUint64(y)))
			}
			sum.Mod(sum, new(big.Int).Lsh(big.NewInt(1), 128))
			lo, hi := binary.LittleEndian.Uint64(got[16*shift:]), binary.LittleEndian.Uint64(got[16*shift+8:])
			have := new(big.Int).Add(new(big.Int).SetUint64(lo), new(big.Int).Lsh(new(big.Int).SetUint64(hi), 64))
			if have.Cmp(sum) != 0 {
				t.Fatalf("hash %d: got %x, want %x", shift, have, sum)
			}
		}
	}
}

// TestFingerprint: every byte, the length and the key count, and nothing else does.
func TestFingerprint(t *testing.T) {
	k, other := newNHKey(), newNHKey()
	seen := map[fingerprint]int{}
	for n := range 3*nhBlock + 2 {
		f := k.of(make([]byte, n))
		if m, ok := seen[f]; ok {
			t.Fatalf("%d and %d zeros are one", m, n)
		}
		seen[f] = n
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 3*nhBlock/16)
	text = append(text, "tail"...)
	want := k.of(text)
	if k.of(bytes.Clone(text)) != want || other.of(text) == want {
		t.Error("equal texts differ, or two keys agree")
	}
	for i := range text {
		text[i] ^= 1
		if k.of(text) == want {
			t.Fatalf("byte %d does not count", i)
		}
		text[i] ^= 1
	}
}

func BenchmarkFingerprint(b *testing.B) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	k := newNHKey()
	for name, f := range map[string]func(){"nh": func() { k.of(text) }, "sha256": func() { sha256.Sum256(text) }} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				f()
			}
		})
	}
}

// TestNames: a text has one name however often and in whatever pieces it comes, and texts that begin alike or that the
// quick hash takes for one keep their own.
func TestNames(t *testing.T) {
	n := newNames()
	check := func(text []byte, step int) {
		t.Helper()
		tap := n.taps().tap().(*digesting)
		for at := 0; at < len(text); at += step {
			tap.Piece(text[at:min(at+step, len(text))], false)
		}
		tap.End(true)
		if got, want := n.of(text, tap), nameOf(text); got != want {
			t.Fatalf("%d bytes by %d: got %s, want %s", len(text), step, got, want)
		}
	}
	long := func(c byte, tail string) []byte { return append(bytes.Repeat([]byte{c}, 2*beginning), tail...) }
	for range 4 {
		for _, text := range [][]byte{[]byte("short"), long('a', ""), long('a', "x"), long('b', ""), long('c', "")[:beginning]} {
			for _, step := range []int{100, beginning, beginning + 1, 1 << 20} {
				check(text, step)
			}
		}
	}
	if len(n.young.texts) != 4 {
		t.Errorf("%d texts are remembered, want 4", len(n.young.texts))
	}
	for _, known := range n.young.texts {
		if !known.printed {
			t.Error("a text that came often has no fingerprint")
		}
	}
	// Texts that share a quick hash, as somebody may contrive.
	a, b := quickHash(long('a', "")), quickHash(long('b', ""))
	n.young.texts[a], n.young.texts[b] = n.young.texts[b], n.young.texts[a]
	for range 3 {
		check(long('a', ""), 5000)
		check(long('b', ""), 5000)
	}
	// A text that lies in pieces, as one with escapes does.
	for _, copied := range []bool{false, true} {
		taps, text := n.taps(), long('e', "")
		tap := taps.tap().(*digesting)
		tap.Piece(bytes.Clone(text[:len(text)-1]), copied)
		tap.Piece(text[len(text)-1:], copied)
		tap.End(true)
		if got, want := n.of(text, tap), nameOf(text); got != want {
			t.Errorf("in pieces: got %s, want %s", got, want)
		}
		taps.drop()
	}
	// A tap that has not seen the whole is of no use.
	tap := n.taps().tap().(*digesting)
	tap.Piece(long('d', ""), false)
	tap.End(false)
	if got, want := n.of(long('d', "\u00e9"), tap), nameOf(long('d', "\u00e9")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i := range maxNamed + 10 {
		n.put(uint64(i), uint64(i), &named{})
	}
	if got := len(n.young.texts) + len(n.old.texts); got > maxNamed+1 {
		t.Errorf("%d names kept, at most %d", got, maxNamed)
	}
	for i := range maxNamed + 10 {
		n.put(uint64(i), 1, &named{}) // one quick hash, as somebody may contrive
	}
	if got := len(n.young.begun) + len(n.old.begun); got > maxNamed+1 {
		t.Errorf("%d beginnings kept, at most %d", got, maxNamed)
	}
}

// TestNoTapsWithoutRewriting: where media go on as they came, nobody takes the time to name them.
func TestNoTapsWithoutRewriting(t *testing.T) {
	for _, noRewrite := range []bool{false, true} {
		f := newFront(t, func(c *Config) { c.NoRewrite = noRewrite })
		r := httptest.NewRequest(http.MethodPost, pathChat, bytes.NewReader(chat(image("AAAA"))))
		req := &request{path: pathChat, pass: admit.From(r.Context())}
		if err := f.read(httptest.NewRecorder(), r, req); err != nil {
			t.Fatal(err)
		}
		if got := req.env.Media[0].Tap != nil; got == noRewrite {
			t.Errorf("a tap: %t, with no_rewrite %t", got, noRewrite)
		}
		req.leave()
		req.memory.Release()
	}
}
