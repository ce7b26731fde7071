// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"sync"

	"afterimage/internal/embedding"
)

// size is that of a picture, in pixels.
type size struct{ width, height int }

// maxLayouts bounds the cache. A layout with M-RoPE positions takes 16 bytes per row, so the largest
// known (4096 rows) fill 16 MiB.
const maxLayouts = 256

// layoutCache remembers layouts by size. The zero value is empty.
type layoutCache struct {
	mu    sync.Mutex
	m     map[size]embedding.Layout
	order [maxLayouts]size // ring of the keys of m, oldest at next once it is full
	next  int
}

func (c *layoutCache) get(s size) (embedding.Layout, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.m[s]
	return l, ok
}

func (c *layoutCache) put(s size, l embedding.Layout) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = make(map[size]embedding.Layout)
	}
	if _, ok := c.m[s]; ok {
		return
	}
	if len(c.m) == maxLayouts {
		delete(c.m, c.order[c.next])
	}
	c.m[s] = l
	c.order[c.next] = s
	c.next = (c.next + 1) % maxLayouts
}
