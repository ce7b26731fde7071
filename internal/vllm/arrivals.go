// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"maps"
	"slices"
	"sync"
)

// maxArrivalTries is how often an Encoder that has come is looked at before it is left alone: one that shares nothing would
// be asked for a picture for ever.
const maxArrivalTries = 6

// arrivals are Encoders that may be other processes than before. Methods may be called from any goroutine.
type arrivals struct {
	note chan struct{} // holds a note that there is one

	mu    sync.Mutex     // guards what follows
	tries map[string]int // that failed, by URL
}

func newArrivals() *arrivals { return &arrivals{note: make(chan struct{}, 1), tries: map[string]int{}} }

func (a *arrivals) add(url string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries[url] = 0
	select {
	case a.note <- struct{}{}:
	default: // it is noted
	}
}

// list returns the URLs in order.
func (a *arrivals) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.tries))
}

func (a *arrivals) drop(url string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tries, url)
}

// failed drops the Encoder if it has been looked at in vain too often.
func (a *arrivals) failed(url string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tries[url]++; a.tries[url] >= maxArrivalTries {
		delete(a.tries, url)
	}
}
