// SPDX-License-Identifier: Apache-2.0

package sums

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"os"
	"testing"
	"unsafe"
)

// TestMain has sums made side by side on every processor: where there are no instructions for it, one after the other.
func TestMain(m *testing.M) {
	if !sideBySide {
		sideBySide, standIn = true, func(l *lanes, together, n int) {
			for i := range together {
				l.states[i].plain(unsafe.Slice(l.texts[i], n*blockBytes))
			}
		}
	}
	os.Exit(m.Run())
}

// plain is take by the standard library, whose state is, in its binary form, a name, the words a to h, a block that is
// not whole yet, and how much was taken in.
func (s *state) plain(p []byte) {
	const name = "sha\x03"
	b := make([]byte, len(name)+len(s)*4+blockBytes+8)
	copy(b, name)
	for i, at := range order {
		binary.BigEndian.PutUint32(b[len(name)+4*i:], s[at])
	}
	h := sha256.New()
	must(h.(encoding.BinaryUnmarshaler).UnmarshalBinary(b))
	h.Write(p)
	b, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	must(err)
	for i, at := range order {
		s[at] = binary.BigEndian.Uint32(b[len(name)+4*i:])
	}
}

// bothWays runs f with sums that are made side by side, and with those of the standard library.
func bothWays(t *testing.T, f func(t *testing.T)) {
	t.Run("side by side", f)
	sideBySide = false
	defer func() { sideBySide = true }()
	t.Run("alone", f)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// TestPlain: what stands in for the instructions does the same.
func TestPlain(t *testing.T) {
	text := make([]byte, 5*blockBytes)
	for i := range text {
		text[i] = byte(i)
	}
	a, b := initial, initial
	a.plain(text[:2*blockBytes])
	a.plain(text[2*blockBytes:])
	b.take(text)
	if a != b {
		t.Errorf("%x, want %x", a, b)
	}
}
