// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"container/list"
	"sync"
)

// visited is what a URL gave last. It is never changed.
type visited struct {
	validator
	known Known
	size  int
	body  []byte // nil if it is not held
	// doubted says that the file was asked for and has not come yet.
	doubted bool
	// distrusted says that the URL's validator has stood for different files.
	distrusted bool
}

// memory is the part of a Revisits that holds what URLs gave, those used latest.
type memory struct {
	maxEntries int
	maxBytes   int64

	mu      sync.Mutex // guards what follows
	at      map[urlKey]*list.Element
	recent  list.List // of *memo, the latest used in front
	holding list.List // of the *memo that have a body, likewise
	bytes   int64     // of bodies
}

type memo struct {
	key  urlKey
	v    *visited
	held *list.Element // in holding; nil without a body
}

func newMemory(entries int, bytes int64) memory {
	return memory{maxEntries: entries, maxBytes: bytes, at: map[urlKey]*list.Element{}}
}

// find returns what is known of a URL, nil if nothing is, and makes it the latest.
func (m *memory) find(key urlKey) *visited {
	m.mu.Lock()
	defer m.mu.Unlock()
	el := m.at[key]
	if el == nil {
		return nil
	}
	m.recent.MoveToFront(el)
	e := el.Value.(*memo)
	if e.held != nil {
		m.holding.MoveToFront(e.held)
	}
	return e.v
}

// drop forgets a URL, unless it is not to be trusted.
func (m *memory) drop(key urlKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if el := m.at[key]; el != nil && !el.Value.(*memo).v.distrusted {
		m.removeLocked(el)
	}
}

// doubt has the next visit of a URL ask without its validator, unless its file comes meanwhile.
func (m *memory) doubt(key urlKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if el := m.at[key]; el != nil {
		e := el.Value.(*memo)
		v := *e.v
		v.doubted, e.v = true, &v
	}
}

// keep remembers what a URL gave, if there is something to ask with the next time. named says that the digest is that
// of the file.
func (m *memory) keep(key urlKey, v visited, named bool) {
	v.body = m.toHold(v) // before the lock: it may copy megabytes
	m.mu.Lock()
	defer m.mu.Unlock()
	if el := m.at[key]; el != nil {
		old := el.Value.(*memo).v
		same := old.known.Digest == v.known.Digest
		if !named {
			same = old.size == v.size && (old.body == nil || bytes.Equal(old.body, v.body))
		}
		v.distrusted = old.distrusted || !same && !v.zero() && v.validator == old.validator
		m.removeLocked(el)
	}
	if m.maxEntries <= 0 || v.zero() && !v.distrusted {
		return
	}
	if v.distrusted {
		v.body = nil
	}
	e := &memo{key: key, v: &v}
	m.at[key] = m.recent.PushFront(e)
	if v.body != nil {
		e.held = m.holding.PushFront(e)
		m.bytes += int64(cap(v.body))
	}
	for m.bytes > m.maxBytes {
		m.emptyLocked(m.holding.Back())
	}
	for len(m.at) > m.maxEntries {
		m.removeLocked(m.recent.Back())
	}
}

// toHold returns the body of v in hardly more memory than it needs, nil if it will not be held.
func (m *memory) toHold(v visited) []byte {
	switch n := len(v.body); {
	case m.maxEntries <= 0 || v.zero() || int64(n) > m.maxBytes:
		return nil
	case cap(v.body) > n+n/8: // what arrived has room to grow
		return append(make([]byte, 0, n), v.body...)
	}
	return v.body
}

// removeLocked forgets an element of recent.
func (m *memory) removeLocked(el *list.Element) {
	e := m.recent.Remove(el).(*memo)
	delete(m.at, e.key)
	if e.held != nil {
		m.holding.Remove(e.held)
		m.bytes -= int64(cap(e.v.body))
	}
}

// emptyLocked lets go of the body of an element of holding.
func (m *memory) emptyLocked(el *list.Element) {
	e := m.holding.Remove(el).(*memo)
	m.bytes -= int64(cap(e.v.body))
	v := *e.v
	v.body, e.v, e.held = nil, &v, nil
}

// stats returns what is held.
func (m *memory) stats() (entries int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at), m.bytes
}
