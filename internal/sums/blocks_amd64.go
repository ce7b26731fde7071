// SPDX-License-Identifier: Apache-2.0

package sums

import "github.com/klauspost/cpuid/v2"

// sideBySide says whether the processor can make sums side by side.
var sideBySide = cpuid.CPU.Supports(cpuid.SHA, cpuid.SSE4, cpuid.SSSE3)

// one takes n blocks of a text in by the processor's instructions for SHA-256, two and four of so many texts.
//
//go:noescape
func one(l *lanes, n int)

//go:noescape
func two(l *lanes, n int)

//go:noescape
func four(l *lanes, n int)
