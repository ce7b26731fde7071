// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package sums

var sideBySide = false

func one(*lanes, int)  { panic("BUG: no sums are made side by side here") }
func two(*lanes, int)  { panic("BUG: no sums are made side by side here") }
func four(*lanes, int) { panic("BUG: no sums are made side by side here") }
