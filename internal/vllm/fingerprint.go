// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// nhBlock is how many bytes one NH takes.
const nhBlock = 1 << 10

// nhKey is a secret under which equal texts have equal fingerprints, and different ones have different ones but for
// a chance of 2^-128 that nobody can raise who does not know the key. It never leaves the process, and nor do
// fingerprints.
//
// A fingerprint is the SHA-256 of the NH hashes of the text's blocks, two of each under a key and the same key
// shifted by two words (Black et al., UMAC, 1999; RFC 4418; with the words of 64 bits of VMAC). NH takes a third of the
// time that a lone SHA-256 takes where the processor has instructions for that, and a tenth where it has none.
type nhKey [nhBlock/8 + 2]uint64

// newNHKey returns a random key.
func newNHKey() *nhKey {
	var b [len(nhKey{}) * 8]byte
	rand.Read(b[:])
	k := &nhKey{}
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return k
}

// fingerprint is the name of a text within this process.
type fingerprint [sha256.Size]byte

// of returns the fingerprint of b.
func (k *nhKey) of(b []byte) fingerprint {
	h := sha256.New()
	var out [256]byte // of NH hashes, 32 bytes each
	n := 0
	length := uint64(len(b))
	put := func(block *[nhBlock]byte) {
		k.block(block, out[n:n+32])
		if n += 32; n == len(out) {
			h.Write(out[:])
			n = 0
		}
	}
	for ; len(b) >= nhBlock; b = b[nhBlock:] {
		put((*[nhBlock]byte)(b))
	}
	if len(b) > 0 {
		var last [nhBlock]byte // the rest, and zeros: the length tells them from zeros of the text
		copy(last[:], b)
		put(&last)
	}
	h.Write(binary.LittleEndian.AppendUint64(out[:n], length))
	var f fingerprint
	h.Sum(f[:0])
	return f
}

// block writes the two hashes of a block, 16 bytes each.
func (k *nhKey) block(b *[nhBlock]byte, out []byte) {
	var hi0, lo0, hi1, lo1 uint64
	k0, k1 := k[0], k[1]
	for i := 0; i < nhBlock/8; i += 2 {
		m0, m1 := binary.LittleEndian.Uint64(b[8*i:8*i+8]), binary.LittleEndian.Uint64(b[8*i+8:8*i+16])
		k2, k3 := k[i+2], k[i+3]
		h, l := bits.Mul64(m0+k0, m1+k1)
		var c uint64
		lo0, c = bits.Add64(lo0, l, 0)
		hi0 += h + c
		h, l = bits.Mul64(m0+k2, m1+k3)
		lo1, c = bits.Add64(lo1, l, 0)
		hi1 += h + c
		k0, k1 = k2, k3
	}
	binary.LittleEndian.PutUint64(out, lo0)
	binary.LittleEndian.PutUint64(out[8:], hi0)
	binary.LittleEndian.PutUint64(out[16:], lo1)
	binary.LittleEndian.PutUint64(out[24:], hi1)
}
