// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"sync"
)

// Budget bounds the bytes of files that requests hold. It is served in order of arrival. Its methods may be called
// from any goroutine.
type Budget struct {
	b       budget
	ceiling int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{ceiling: bytes} }

// Used returns how many bytes are given out.
func (b *Budget) Used() int64 {
	b.b.mu.Lock()
	defer b.b.mu.Unlock()
	return b.b.used
}

// Bytes returns the size of the budget.
func (b *Budget) Bytes() int64 { return b.ceiling }

// Reserve waits for n bytes, or for all that there are if n is more. Who holds a part must not wait for another.
func (b *Budget) Reserve(ctx context.Context, n int64) (*Part, error) {
	n = min(n, b.ceiling)
	if _, err := b.b.reserve(ctx, n, b.ceiling); err != nil {
		return nil, err
	}
	return &Part{of: b, bytes: n}, nil
}

// Part is a part of a Budget. A nil Part is empty.
type Part struct {
	of    *Budget
	mu    sync.Mutex // guards bytes
	bytes int64
}

// Keep gives all but n bytes back.
func (p *Part) Keep(n int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if back := p.bytes - max(n, 0); back > 0 {
		p.bytes -= back
		p.of.b.release(back)
	}
}

// Release gives everything back. A second call does nothing.
func (p *Part) Release() { p.Keep(0) }
