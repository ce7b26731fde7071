// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"sync"
)

// recent are hashes that consumers were brought, so that the next one of them may be there still.
type recent struct {
	mu   sync.Mutex // guards what follows
	seen halves[string, struct{}]
}

func (r *recent) has(hash string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.seen.get(hash)
	return ok
}

func (r *recent) put(hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.put(hash, struct{}{})
}

func (r *recent) drop(hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen.young, hash)
	delete(r.seen.old, hash)
}

func (r *recent) dropAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = halves[string, struct{}]{}
}
