// SPDX-License-Identifier: Apache-2.0

package openai

import "golang.org/x/sys/cpu"

// vectorBytes is what one step of vectorsAVX2 looks at.
const vectorBytes = 128

// vectorsAVX2 looks at n times vectorBytes and returns how many bytes come before a quote, a backslash, or a byte that
// is less than least, as numbers with a sign.
//
//go:noescape
func vectorsAVX2(b *byte, n int, least int8) (before int)

// vectors returns how many bytes b begins with that are no quote, no backslash, and not less than least; there may be
// more behind them.
func vectors(b []byte, least int8) int {
	switch {
	case !cpu.X86.HasAVX2:
		return windows(b, least)
	case len(b) < vectorBytes:
		return 0
	}
	return vectorsAVX2(&b[0], len(b)/vectorBytes, least)
}
