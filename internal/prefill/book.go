// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"sync"
	"time"

	"afterimage/internal/openai"
)

func newBook() *book {
	b := &book{byName: map[string]*prepared{}}
	b.released = newReleased(&b.mu)
	return b
}

// book holds prepared requests under their attempt's name. A release may overtake the prepare call that it is about.
type book struct {
	mu       sync.Mutex // guards what follows
	byName   map[string]*prepared
	released released // each for the time of a prepare call
	closed   bool
}

// add keeps p until it is taken or ttl has passed. It refuses a name that is in use or released.
func (b *book) add(name string, p *prepared, ttl time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return openai.Unavailable(retryAfter, "this worker is stopping")
	}
	if b.released.take(name) {
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
	return b.takeLocked(name)
}

func (b *book) takeLocked(name string) *prepared {
	p := b.byName[name]
	delete(b.byName, name)
	if p != nil {
		p.expire.Stop()
	}
	return p
}

// release gives the grants of a request back, now or when its prepare call comes to its end within ttl.
func (b *book) release(name string, ttl time.Duration) {
	b.mu.Lock()
	p := b.takeLocked(name)
	if p == nil && !b.closed {
		b.released.add(name, ttl)
	}
	b.mu.Unlock()
	if p != nil {
		p.cancel()
	}
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
