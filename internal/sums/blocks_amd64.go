// SPDX-License-Identifier: Apache-2.0

package sums

import "github.com/klauspost/cpuid/v2"

// paired says whether the processor can make two sums side by side.
var paired = cpuid.CPU.Supports(cpuid.SHA, cpuid.SSE4, cpuid.SSSE3)

// instructed is blocks by the processor's instructions for SHA-256.
//
//go:noescape
func instructed(a, b *state, p, q *byte, n int)
