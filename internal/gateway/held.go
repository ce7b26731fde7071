// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"sync"

	"afterimage/internal/control"
)

// maxHeld bounds what is remembered of one Encoder, some 20 bytes a key. An Encoder tells of as many at once.
const maxHeld = 1 << 16

// held is what one Encoder's cache is thought to hold, by the changes that it tells of. It is a hint: as old as the
// latest probe, and nothing depends on it but which Encoder is asked first.
type held struct {
	mu      sync.RWMutex // guards what follows
	boot    string       // of the process that it is about
	version uint64
	keys    map[uint64]struct{} // by their sums
}

// since returns the version that is known of a process: 0 of one that is not, whose past is forgotten.
func (h *held) since(boot string) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boot != boot {
		h.boot, h.version, h.keys = boot, 0, nil
	}
	return h.version
}

// take files changes since the version that is known, or all that there is. What another process says is left out.
func (h *held) take(now *control.Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Boot != h.boot {
		return
	}
	if now.Whole || h.keys == nil {
		h.keys = make(map[uint64]struct{}, min(len(now.In), maxHeld))
	}
	for _, sum := range now.Out {
		delete(h.keys, sum)
	}
	for _, sum := range now.In {
		if len(h.keys) < maxHeld {
			h.keys[sum] = struct{}{}
		}
	}
	h.version = now.Version
}

// has says whether a key of this sum is thought to be held. A nil held holds nothing.
func (h *held) has(sum uint64) bool {
	if h == nil {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	_, ok := h.keys[sum]
	return ok
}

func (h *held) size() int {
	if h == nil {
		return 0
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.keys)
}

// follow asks an Encoder what has changed in its cache, if it says that anything has. What cannot be learnt is
// asked for again with the next probe.
func (f *fleet) follow(ctx context.Context, w worker) {
	if w.held == nil {
		return
	}
	since := w.held.since(w.Seen.Boot)
	if w.Seen.Held == since {
		return
	}
	var now control.Held
	path := control.PathHeld
	if since > 0 {
		path = fmt.Sprintf("%s?since=%d", path, since)
	}
	if err := f.get(ctx, w.URL, path, control.MaxHeldBytes, &now); err != nil {
		f.log.Debug("what an Encoder holds is not known", "name", w.Seen.Name, "err", err)
		return
	}
	w.held.take(&now)
}
