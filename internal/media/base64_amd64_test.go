// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"
)

const standard = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// Every byte in every place of a block is taken or refused as it should be.
func TestBlocksTakeDigitsOnly(t *testing.T) {
	clean := []byte(strings.Repeat(standard, 2)[:96])
	for at := range clean {
		for c := range 256 {
			src := bytes.Clone(clean)
			src[at] = byte(c)
			want := 3
			if !strings.ContainsRune(standard, rune(c)) {
				want = at / blockDigits
			}
			if !cpu.X86.HasAVX2 {
				want = 0
			}
			dst := make([]byte, 3*blockBytes+8)
			if got := blocks(dst, src); got != want {
				t.Fatalf("byte %#x at %d: %d blocks, want %d", c, at, got, want)
			}
			whole, err := base64.StdEncoding.DecodeString(string(src[:want*blockDigits]))
			if err != nil || !bytes.Equal(dst[:want*blockBytes], whole) {
				t.Fatalf("byte %#x at %d: got %x, want %x, %v", c, at, dst[:want*blockBytes], whole, err)
			}
		}
	}
}

// Nothing is written outside of dst, and decoding in place gives the same.
func TestBlocksStayInside(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 400 {
		src := make([]byte, n)
		for i := range src {
			src[i] = standard[r.IntN(64)]
		}
		for room := range min(n, 130) {
			frame := bytes.Repeat([]byte{0xa5}, room+64)
			k := blocks(frame[:room:room], src)
			if !bytes.Equal(frame[room:], bytes.Repeat([]byte{0xa5}, 64)) {
				t.Fatalf("%d digits into %d bytes: wrote behind them", n, room)
			}
			if k*blockBytes > room || k*blockDigits > n {
				t.Fatalf("%d digits into %d bytes: says %d blocks", n, room, k)
			}
		}
		apart := make([]byte, n+blockDigits)
		k := blocks(apart, src)
		if got := blocks(src, src); got > k || !bytes.Equal(src[:got*blockBytes], apart[:got*blockBytes]) {
			t.Fatalf("%d digits in place: %d blocks, apart %d", n, got, k)
		}
	}
}
