// SPDX-License-Identifier: Apache-2.0

package media

import "golang.org/x/sys/cpu"

// Lengths of a block. A store writes a whole register, eight bytes more than a block gives.
const (
	blockDigits = 32
	blockBytes  = 24
	blockStore  = 32
)

// blocksAVX2 decodes n blocks of digits of the standard alphabet and returns how many came before one
// that holds anything else. It writes 8 bytes behind the last one.
//
//go:noescape
func blocksAVX2(dst, src *byte, n int) (done int)

// blocks decodes blocks of clean digits as far as they go, and returns how many. What it says of dst and
// src is that of quads.
func blocks(dst, src []byte) int {
	if !cpu.X86.HasAVX2 || len(src) < blockDigits || len(dst) < blockStore {
		return 0
	}
	n := min(len(src)/blockDigits, (len(dst)-blockStore)/blockBytes+1)
	return blocksAVX2(&dst[0], &src[0], n)
}
