// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// slowReads is a Store whose reads take a while; it notes how many bytes were being read at once.
type slowReads struct {
	store.Store
	takes     time.Duration
	now, most atomic.Int64
	reads     atomic.Int64
}

func (s *slowReads) Get(ctx context.Context, wants []store.Want) []store.Got {
	n := int64(0)
	for _, w := range wants {
		n += int64(w.Bytes)
	}
	s.reads.Add(1)
	for at := s.now.Add(n); ; {
		if old := s.most.Load(); at <= old || s.most.CompareAndSwap(old, at) {
			break
		}
	}
	defer s.now.Add(-n)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
	}
	return s.Store.Get(ctx, wants)
}

// newReaders is a bench whose reads take time, with room for two of its objects in the read buffer.
func newReaders(t *testing.T, takes time.Duration) (*bench, *slowReads, Item) {
	slow := &slowReads{takes: takes}
	x := item("x", 1000, 8)
	b := newBench(t, embedding.V3, func(c *Config) {
		slow.Store = c.Store
		c.Store, c.Cache, c.ReadBufferBytes = slow, nil, 2*(24+32_000)
	})
	b.plant(x, x, 1)
	return b, slow, x
}

// Case C06: a burst of readers of a large value. What they read into is bounded, all of them together, and
// they take turns.
func TestReadersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, slow, x := newReaders(t, 100*time.Millisecond)
		var readers sync.WaitGroup
		for range 20 {
			readers.Go(func() {
				r := b.r.Resolve(t.Context(), []Item{x})[0]
				b.hit(r, x, control.SourceStore, 1)
				if r.Buf != nil {
					r.Buf.Release()
				}
			})
		}
		readers.Wait()
		if most := slow.most.Load(); most != 2*(24+32_000) {
			t.Errorf("%d bytes were being read at once, want the read buffer's 64048", most)
		}
		if n := slow.reads.Load(); n != 20 {
			t.Errorf("%d reads, want 20", n)
		}
	})
}

// Case C06: a reader whose turn does not come in time encodes, and gives up its place in the queue.
func TestReaderWithoutATurnEncodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, x := newReaders(t, 1500*time.Millisecond)
		var hits, misses atomic.Int64
		var readers sync.WaitGroup
		for range 6 {
			readers.Go(func() {
				r := b.r.Resolve(t.Context(), []Item{x})[0]
				switch {
				case r.Buf != nil:
					hits.Add(1)
					r.Buf.Release()
				case r.Reason == Timeout && errors.Is(r.Err, store.ErrUnavailable):
					misses.Add(1)
				default:
					t.Errorf("reason %q, %v", r.Reason, r.Err)
				}
			})
		}
		readers.Wait()
		if hits.Load() != 2 || misses.Load() != 4 {
			t.Errorf("%d hits and %d misses, want 2 in the first 2 s and 4 that are encoded", hits.Load(), misses.Load())
		}
		b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
	})
}
