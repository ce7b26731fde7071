// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"cmp"
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

	mu    sync.Mutex // guards what follows
	count int        // of all that ever came
	by    map[string]arrival
}

// arrival is one of them.
type arrival struct {
	url    string
	number int // tells it from one that comes to the same URL while it is looked at
	tries  int // that failed
}

func newArrivals() *arrivals {
	return &arrivals{note: make(chan struct{}, 1), by: map[string]arrival{}}
}

func (a *arrivals) add(url string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	a.by[url] = arrival{url: url, number: a.count}
	select {
	case a.note <- struct{}{}:
	default: // it is noted
	}
}

// list returns them in the order of their URLs.
func (a *arrivals) list() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.by), func(x, y arrival) int { return cmp.Compare(x.url, y.url) })
}

// drop takes out one that there is nothing to learn from any more.
func (a *arrivals) drop(x arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[x.url].number == x.number {
		delete(a.by, x.url)
	}
}

// failed notes that x was looked at in vain, and drops it if that was too often.
func (a *arrivals) failed(x arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[x.url].number != x.number {
		return
	}
	if x.tries++; x.tries < maxArrivalTries {
		a.by[x.url] = x
	} else {
		delete(a.by, x.url)
	}
}
