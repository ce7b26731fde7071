// SPDX-License-Identifier: Apache-2.0

// Package media turns the bytes that a client sent into checked pixels.
package media

// Pixels is a decoded, upright picture: 8-bit RGB, row by row, no padding.
type Pixels struct {
	Width, Height int
	RGB           []byte // Width*Height*3
}
