// SPDX-License-Identifier: Apache-2.0

package sums

import "github.com/klauspost/cpuid/v2"

// paired says whether the processor can make two sums side by side.
var paired = cpuid.CPU.Supports(cpuid.SHA, cpuid.SSE4, cpuid.SSSE3)

// blocks takes n blocks of p into a and as many of q into b, in one go. n is at least 1, and a is not b.
//
//go:noescape
func blocks(a, b *state, p, q *byte, n int)
