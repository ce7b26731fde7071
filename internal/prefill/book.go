// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"sync"
	"time"

	"afterimage/internal/openai"
)

func newBook() book {
	return book{byName: map[string]*prepared{}, released: map[string]struct{}{}}
}

// book holds prepared requests under their attempt's name.
//
// A release may overtake the prepare call that it is about: the gateway gave that call up, and its two
// calls travel apart. So a release of an unknown name is remembered, and wins.
type book struct {
	mu       sync.Mutex // guards what follows
	byName   map[string]*prepared
	released map[string]struct{} // at most maxReleased, each for the time of a prepare call
	closed   bool
}

// maxReleased bounds the memory that releases of unknown names take. Past it they are forgotten, and
// grants that they were about expire.
const maxReleased = 4096

// add keeps p until it is taken or ttl has passed. It refuses a name that is in use or released.
func (b *book) add(name string, p *prepared, ttl time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return openai.Unavailable(retryAfter, "this worker is stopping")
	}
	if _, ok := b.released[name]; ok {
		delete(b.released, name)
		return openai.BadRequest("request", "%q is released already", name)
	}
	if _, ok := b.byName[name]; ok {
		return openai.BadRequest("request", "%q is prepared already", name)
	}
	p.expire = time.AfterFunc(ttl, func() {
		if q := b.take(name); q != nil {
			q.cancel()
		}
	})
	b.byName[name] = p
	return nil
}

// take removes and returns a prepared request, or nil.
func (b *book) take(name string) *prepared {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.byName[name]
	delete(b.byName, name)
	if p != nil {
		p.expire.Stop()
	}
	return p
}

// release gives the grants of a request back, now or when its prepare call comes to its end within ttl.
func (b *book) release(name string, ttl time.Duration) {
	if p := b.take(name); p != nil {
		p.cancel()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.released) >= maxReleased {
		return
	}
	b.released[name] = struct{}{}
	time.AfterFunc(ttl, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.released, name)
	})
}

func (b *book) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byName)
}

func (b *book) close() {
	b.mu.Lock()
	all := b.byName
	b.byName, b.closed = nil, true
	b.mu.Unlock()
	for _, p := range all {
		p.cancel()
	}
}
