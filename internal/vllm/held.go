// SPDX-License-Identifier: Apache-2.0

package vllm

import "sync"

// maxHeld is how many images are remembered per Encoder. vLLM's processor cache has 4 GiB by default, which
// is fewer pictures than this in all but the smallest sizes; what it has dropped costs one more round trip.
const maxHeld = 8192

// held remembers which images each Encoder has been sent, in its processor cache. It is a hint: an Encoder
// that does not hold one says so, and is sent it again.
type held struct {
	mu   sync.Mutex // guards what follows
	seen map[string]*generation
}

// generation is a set that forgets in two halves: what is asked for moves into the younger one.
type generation struct{ young, old map[string]struct{} }

func newHeld() *held { return &held{seen: map[string]*generation{}} }

// has says whether the Encoder at url was sent name, and keeps it from being forgotten.
func (h *held) has(url, name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.seen[url]
	if g == nil || name == "" {
		return false
	}
	if _, ok := g.young[name]; ok {
		return true
	}
	_, ok := g.old[name]
	if ok {
		g.put(name)
	}
	return ok
}

// put notes that the Encoder at url was sent name.
func (h *held) put(url, name string) {
	if name == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.seen[url]
	if g == nil {
		g = &generation{young: map[string]struct{}{}}
		h.seen[url] = g
	}
	g.put(name)
}

func (g *generation) put(name string) {
	if g.young[name] = struct{}{}; len(g.young) > maxHeld/2 {
		g.young, g.old = map[string]struct{}{}, g.young
	}
}

// drop forgets names of the Encoder at url.
func (h *held) drop(url string, names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.seen[url]; g != nil {
		for _, n := range names {
			delete(g.young, n)
			delete(g.old, n)
		}
	}
}

// forget drops all of the Encoder at url.
func (h *held) forget(url string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.seen, url)
}
