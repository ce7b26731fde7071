// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"container/list"
	"errors"
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// errNoRoom: nothing that may be evicted makes enough room at this moment.
var errNoRoom = errors.New("no room")

// recallWait is how long the holder of a recalled loan has to return it, and so the longest that a
// PUT waits for room.
const recallWait = 100 * time.Millisecond

// put makes room for an object, for which it recalls loans and waits for recallWait if nothing else
// helps. It returns nil and no error when the object is there already.
func (s *shelf) put(k embedding.Key, n int64, opts store.PutOptions, deadline time.Time) (*upload, error) {
	u, err := s.reserve(k, n, opts, deadline)
	if !errors.Is(err, errNoRoom) {
		return u, err
	}
	late, look := time.NewTimer(recallWait), time.NewTicker(linger)
	defer late.Stop()
	defer look.Stop()
	for waiting := true; waiting; {
		returned, ok := s.recallFor(n)
		// What came back until here is not waited for.
		if u, err = s.reserve(k, n, opts, deadline); !errors.Is(err, errNoRoom) {
			return u, err
		}
		if waiting = ok; ok {
			select {
			case <-returned:
			case <-look.C: // pins end without a word
			case <-late.C:
				waiting = false
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n.rejected++
	return nil, err
}

// reserve does put without waiting. It evicts only when that makes enough room: a PUT that cannot fit
// costs no other object its place. A refusal with errNoRoom is not counted.
func (s *shelf) reserve(k embedding.Key, n int64, opts store.PutOptions, deadline time.Time) (*upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the Store is closing")
	}
	if s.findLocked(k) != nil {
		s.n.duplicates++
		return nil, nil
	}
	buf, err := s.roomLocked(n, opts.Tenant)
	if err != nil {
		if !errors.Is(err, errNoRoom) {
			s.n.rejected++
		}
		return nil, err
	}
	s.held += n
	s.uploads++
	u := &upload{key: k, buf: buf, tenant: s.tenantLocked(opts.Tenant), ttl: opts.TTL, soft: opts.SoftPin, deadline: deadline}
	s.chargeLocked(u.tenant, n)
	return u, nil
}

// roomLocked takes memory from the arena, evicting as needed.
func (s *shelf) roomLocked(n int64, tenant string) (*arena.Buf, error) {
	if n <= 0 || n > s.maxObject {
		return nil, fmt.Errorf("object of %d bytes, want 1 to %d", n, s.maxObject)
	}
	s.syncLocked()
	fixed := s.reading + s.held // bytes that no eviction frees
	if fixed+n > s.limit {
		return nil, fmt.Errorf("%w for %d bytes: %d of %d are being read or written; raise the Store's size", errNoRoom, n, fixed, s.limit)
	}
	if !s.onePieceLocked(n, s.limit-fixed) {
		return nil, fmt.Errorf("%w for %d bytes in one piece, between what is being read or written", errNoRoom, n)
	}
	if err := s.quotaLocked(n, tenant); err != nil {
		return nil, err
	}
	for s.used+s.held+n > s.limit {
		if !s.evictLocked() {
			return nil, fmt.Errorf("%w for %d bytes in %d", errNoRoom, n, s.limit)
		}
	}
	for {
		// The arena may be full before the limit is reached, by rounding or fragmentation.
		buf, err := s.arena.Reserve(int(n))
		if err == nil {
			return buf, nil
		}
		if !errors.Is(err, arena.ErrFull) {
			return nil, err
		}
		if !s.evictLocked() {
			return nil, fmt.Errorf("%w: %w", errNoRoom, err)
		}
	}
}

// onePieceLocked reports whether there are n bytes in one piece once all is evicted that may be, which leaves
// room of the Store.
func (s *shelf) onePieceLocked(n, room int64) bool {
	const rounding = 64 // of what the arena hands out
	if n <= room/int64(s.inUse+s.uploads+1)-rounding {
		return true // wherever those lie that stay
	}
	var gone []*arena.Buf
	for _, o := range s.all {
		if o.readers == 0 && !o.buf.Shared() {
			gone = append(gone, o.buf)
		}
	}
	return s.arena.LargestWithout(gone) >= n
}

// quotaLocked makes room within a tenant's quota, at the cost of that tenant's objects alone.
func (s *shelf) quotaLocked(n int64, name string) error {
	if s.quota == nil || name == "" {
		return nil
	}
	quota := s.quota(name)
	if quota <= 0 {
		return nil
	}
	if n > quota {
		return fmt.Errorf("object of %d bytes, the quota of tenant %q is %d", n, name, quota)
	}
	t := s.tenants[name]
	if t != nil && !yields(&t.lru, t.bytes+n-quota) {
		return fmt.Errorf("%w for %d bytes: of the quota of tenant %q, %d, too much is in use", errNoRoom, n, name, quota)
	}
	for t != nil && t.bytes+n > quota {
		if !s.evictFromLocked(&t.lru, func(o *object) bool { return !o.soft }) &&
			!s.evictFromLocked(&t.lru, func(*object) bool { return true }) {
			return fmt.Errorf("%w for %d bytes: tenant %q has %d of %d in use", errNoRoom, n, name, t.bytes, quota)
		}
		t = s.tenants[name] // gone with its last byte
	}
	return nil
}

func (s *shelf) tenantLocked(name string) *tenant {
	t, ok := s.tenants[name]
	if !ok {
		t = &tenant{name: name}
		s.tenants[name] = t
	}
	return t
}

// chargeLocked counts bytes of a tenant, who is forgotten with the last of them.
func (s *shelf) chargeLocked(t *tenant, n int64) {
	if t.bytes += n; t.bytes == 0 {
		delete(s.tenants, t.name)
	} else {
		s.tenants[t.name] = t
	}
}

// evictLocked drops the coldest object that nobody reads, soft pins last, and reports whether there
// was one.
func (s *shelf) evictLocked() bool {
	any := func(*object) bool { return true }
	return s.evictFromLocked(&s.lru, any) || s.evictFromLocked(&s.soft, any)
}

func (s *shelf) evictFromLocked(order *list.List, ok func(*object) bool) bool {
	for range evictTries {
		o := coldest(order, ok)
		if o == nil {
			return false
		}
		if s.hideLocked(o); coldest(order, ok) == o {
			s.n.evictions++
			s.forgetLocked(o)
			return true
		}
		s.index.show(o) // somebody has used it
	}
	return false
}

// yields reports whether evicting from order frees n bytes.
func yields(order *list.List, n int64) bool {
	for e := order.Back(); e != nil && n > 0; e = e.Prev() {
		if o := e.Value.(*object); o.readers == 0 {
			n -= int64(o.buf.Len())
		}
	}
	return n <= 0
}

// evictTries bounds how often clients may use what is about to be evicted.
const evictTries = 64

// coldest returns the object of order that was read longest ago, of those that nobody reads.
func coldest(order *list.List, ok func(*object) bool) *object {
	for e := order.Back(); e != nil; e = e.Prev() {
		if o := e.Value.(*object); o.readers == 0 && ok(o) {
			return o
		}
	}
	return nil
}
