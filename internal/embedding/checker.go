// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// Checker does Protocol.Open for an object that comes in pieces. It sums each piece when it has just been
// written, while the nearest cache has it: a sum of the whole afterwards would read all of it from memory once
// more. Its zero value is not usable: begin with Reset. It belongs to one goroutine.
type Checker struct {
	p      Protocol
	h      xxh3.Hasher
	begun  bool // the head is there and summed is set
	summed int  // bytes of the object up to which nothing is left to sum
}

// Reset begins an object of format p.
func (c *Checker) Reset(p Protocol) {
	c.p, c.begun, c.summed = p, false, 0
	c.h.Reset()
}

// Feed says that the first n bytes of obj, which has the length of the whole object, are in place and stay
// as they are. n never falls.
func (c *Checker) Feed(obj []byte, n int) {
	if !c.begun {
		if c.p == A1 && n < min(headBytesA1, len(obj)) {
			return
		}
		c.begun = true
		if c.p == A1 {
			_, section, err := parseHeadA1(obj)
			c.summed = headBytesA1 + section
			if err != nil { // Open says why
				c.summed = len(obj)
			}
		}
	}
	if n > c.summed {
		_, _ = c.h.Write(obj[c.summed:n]) // never fails
		c.summed = n
	}
}

// Sum64 returns the XXH3-64 of what was fed: of the payload of an a1 object, of the whole of a v3 object.
func (c *Checker) Sum64() uint64 { return c.h.Sum64() }

// Open does Protocol.Open for obj, of which all bytes were fed.
func (c *Checker) Open(obj []byte, key Key, k Contract) (Meta, []byte, error) {
	if c.p != A1 {
		return c.p.Open(obj, key, k)
	}
	m, payload, want, err := openHeadA1(obj, key, k)
	if err != nil {
		return Meta{}, nil, err
	}
	if got := c.Sum64(); got != want {
		return Meta{}, nil, fmt.Errorf("%w: sum %016x, want %016x", ErrCorrupt, got, want)
	}
	return m, payload, nil
}
