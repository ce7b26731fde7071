// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// Object is an entry of a cache. One reference of the Buf is its holder's.
type Object struct {
	Key  embedding.Key
	Buf  *arena.Buf
	Meta embedding.Meta
}

// Hot returns all entries, the most recently used first, without using them. The caller owns a reference of
// each.
func (c *Cache) Hot() []Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Object, 0, len(c.entries))
	for el := c.recent.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		out = append(out, Object{e.key, e.buf.Retain(), e.meta})
	}
	return out
}
