// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// reserve makes room for an object. It returns nil and no error when the object is there already.
// It evicts only when that makes enough room: a PUT that cannot fit costs no other object its place.
func (s *shelf) reserve(k embedding.Key, n int64, deadline time.Time) (*upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the Store is closing")
	}
	if _, ok := s.objects[k]; ok {
		s.n.duplicates++
		return nil, nil
	}
	buf, err := s.roomLocked(n)
	if err != nil {
		s.n.rejected++
		return nil, err
	}
	s.held += n
	s.uploads++
	return &upload{key: k, buf: buf, deadline: deadline}, nil
}

// roomLocked takes memory from the arena, evicting as needed.
func (s *shelf) roomLocked(n int64) (*arena.Buf, error) {
	if n <= 0 || n > s.maxObject {
		return nil, fmt.Errorf("object of %d bytes, want 1 to %d", n, s.maxObject)
	}
	fixed := s.reading + s.held // bytes that no eviction frees
	if fixed+n > s.limit {
		return nil, fmt.Errorf("no room for %d bytes: %d of %d are being read or written; raise the Store's size", n, fixed, s.limit)
	}
	for s.used+s.held+n > s.limit {
		if !s.evictLocked() {
			return nil, fmt.Errorf("no room for %d bytes in %d", n, s.limit)
		}
	}
	for {
		// The arena may be full before the limit is reached, by rounding or fragmentation.
		buf, err := s.arena.Reserve(int(n))
		if err == nil {
			return buf, nil
		}
		if !errors.Is(err, arena.ErrFull) || !s.evictLocked() {
			return nil, err
		}
	}
}

// evictLocked drops the coldest object that nobody reads, and reports whether there was one.
func (s *shelf) evictLocked() bool {
	for e := s.lru.Back(); e != nil; e = e.Prev() {
		if o := e.Value.(*object); o.readers == 0 {
			s.n.evictions++
			s.unlinkLocked(o)
			return true
		}
	}
	return false
}
