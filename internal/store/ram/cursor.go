// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"fmt"

	"afterimage/internal/embedding"
)

// cursor takes a body apart. After a read past the end every read gives zero and ok is false.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) bytes(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) u8() uint8 {
	if v := c.bytes(1); v != nil {
		return v[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if v := c.bytes(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if v := c.bytes(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if v := c.bytes(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// key reads a key of n bytes. The result is a copy.
func (c *cursor) key(n int) embedding.Key {
	if n == 0 || n > maxKeyBytes {
		c.bad = true
	}
	return embedding.Key(c.bytes(n))
}

// end reports whether the body held what was read from it, and nothing else.
func (c *cursor) end() error {
	if c.bad || len(c.b) != 0 {
		return fmt.Errorf("%w: body does not match its op", errProtocol)
	}
	return nil
}
