// SPDX-License-Identifier: Apache-2.0

package media

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

// decoding counts what all Decode calls of the process hold.
var decoding budget

// budget is a counter of bytes with a queue. Each caller brings the ceiling that it wants to respect.
// Waiters are served in order of arrival, so that a large picture is not starved by small ones.
type budget struct {
	mu      sync.Mutex // guards the fields below
	used    int64      // bytes granted and not released
	waiters list.List  // of *claim, oldest first
}

type claim struct {
	bytes, ceiling int64
	granted        chan struct{}
}

// DecodingBytes returns what all Decode calls of the process hold at this moment.
func DecodingBytes() int64 {
	decoding.mu.Lock()
	defer decoding.mu.Unlock()
	return decoding.used
}

// reserve waits until n more bytes fit under ceiling. The caller releases them once.
func (b *budget) reserve(ctx context.Context, n, ceiling int64) (release func(), err error) {
	release = sync.OnceFunc(func() { b.release(n) })
	b.mu.Lock()
	if b.waiters.Len() == 0 && b.used+n <= ceiling {
		b.used += n
		b.mu.Unlock()
		return release, nil
	}
	c := &claim{bytes: n, ceiling: ceiling, granted: make(chan struct{})}
	e := b.waiters.PushBack(c)
	b.mu.Unlock()
	select {
	case <-c.granted:
		return release, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	select {
	case <-c.granted: // granted and cancelled at once: give it back
		b.used -= n
	default:
		b.waiters.Remove(e)
	}
	b.grantLocked()
	b.mu.Unlock()
	return nil, fmt.Errorf("media: waiting for %d bytes of the decode budget: %w", n, context.Cause(ctx))
}

func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.grantLocked()
}

// grantLocked serves waiters from the front until one does not fit.
func (b *budget) grantLocked() {
	for e := b.waiters.Front(); e != nil; e = b.waiters.Front() {
		c := e.Value.(*claim)
		if b.used+c.bytes > c.ceiling {
			return
		}
		b.used += c.bytes
		b.waiters.Remove(e)
		close(c.granted)
	}
}
