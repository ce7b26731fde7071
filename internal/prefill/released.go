// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"sync"
	"time"
)

// released are names of attempts that were let go of before what was to be kept under them was there: the gateway
// gave up the call that it comes of, and its two calls travel apart. So a release of an unknown name is remembered, and
// wins. Methods are called with lock held, which is the owner's.
type released struct {
	lock  sync.Locker
	names map[string]struct{} // at most maxReleased, each for a time
}

// maxReleased bounds the memory that releases of unknown names take. Past it they are forgotten, and
// what they were about expires.
const maxReleased = 4096

func newReleased(lock sync.Locker) released {
	return released{lock: lock, names: map[string]struct{}{}}
}

// add remembers name for ttl.
func (r *released) add(name string, ttl time.Duration) {
	if len(r.names) >= maxReleased {
		return
	}
	r.names[name] = struct{}{}
	time.AfterFunc(ttl, func() {
		r.lock.Lock()
		defer r.lock.Unlock()
		delete(r.names, name)
	})
}

// take says whether name was let go of, and forgets it.
func (r *released) take(name string) bool {
	_, ok := r.names[name]
	delete(r.names, name)
	return ok
}
