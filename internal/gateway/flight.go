// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"sync"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// flight is the encode of one image at one Encoder, for every request that wants it meanwhile. The first to
// ask leads: it sends the file. The others join: their grants follow, and the Encoder sends the one
// embedding to all. A flight outlives its leader; it ends early when nobody waits for it.
type flight struct {
	key   flightKey
	enc   worker
	began time.Time
	done  chan struct{} // closed when the Encoder has it, or never will

	// Set before done is closed. fault is the Encoder's word on this image, err what became of its call.
	fault *control.Error
	err   error
	ended time.Time

	round int   // of the leader: how often its request had failed before
	call  *call // guarded by flights.mu, as are the fields below
	open  int   // requests that wait
}

func newFlight(key flightKey, enc worker, round int) *flight {
	return &flight{key: key, enc: enc, began: time.Now(), done: make(chan struct{}), round: round, open: 1}
}

// failed says that the flight has ended without an embedding.
func (f *flight) failed() bool { return f.fault != nil || f.err != nil }

// landed says whether the flight has ended.
func (f *flight) landed() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// takes says whether a request with that past, which has come at start, may share f: while it is under way at an Encoder
// that has not stalled, and its failure if the request was under way with it and has not failed as often.
func (f *flight) takes(past *history, start time.Time, stalled func(url string) bool) bool {
	if f.landed() {
		return f.failed() && f.round >= past.round && start.Before(f.ended)
	}
	return past.workers[f.enc.URL] != refused && !stalled(f.enc.URL)
}

// flightKey tells flights apart. One that was forced gives what no other has touched.
type flightKey struct {
	key    embedding.Key
	forced bool
}

// call is one encode call, which serves flights of several images.
type call struct {
	stop context.CancelFunc
	open int // flights that somebody waits for
}

// flights are those under way, by what they make. Its zero value is not usable: see newFlights.
type flights struct {
	mu  sync.Mutex // guards what follows, and the counts of flights and calls
	now map[flightKey]*flight
}

func newFlights() *flights { return &flights{now: map[flightKey]*flight{}} }

// keepLanded is how long the end of a flight is remembered, for requests that were under way with it and
// are late. A failure is theirs too, so that N of them do not try N times; and what was encoded afresh for
// one serves the others that missed it.
const keepLanded = 2 * time.Second

// board finds the flight of key to join, or makes one to lead with what pick chooses.
func (fs *flights) board(key flightKey, past *history, start time.Time, stalled func(url string) bool, pick func() (worker, error)) (f *flight, leads bool, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.now[key]; f != nil && f.takes(past, start, stalled) {
		f.open++
		return f, false, nil
	}
	enc, err := pick()
	if err != nil {
		return nil, false, err
	}
	f = newFlight(key, enc, past.round)
	fs.now[key] = f
	return f, true, nil
}

// fresh says whether the image was encoded afresh since a request missed it.
func (fs *flights) fresh(key embedding.Key, missed time.Time) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.now[flightKey{key, true}]
	return f != nil && f.landed() && !f.failed() && f.began.After(missed)
}

// leave is called by each request of a flight, however it ends. The call ends with its last.
func (fs *flights) leave(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.open--; f.open > 0 || f.call == nil {
		return
	}
	if fs.now[f.key] == f && !f.landed() { // nobody may join what is about to be cancelled
		delete(fs.now, f.key)
	}
	if f.call.open--; f.call.open == 0 {
		f.call.stop()
	}
}

// launch ties flights to the call that serves them. Those whose requests have left already do not count.
func (fs *flights) launch(all []*flight, stop context.CancelFunc) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	c := &call{stop: stop, open: len(all)}
	for _, f := range all {
		f.call = c
	}
}

// land ends a flight and forgets it after a while.
func (fs *flights) land(f *flight, fault *control.Error, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.fault, f.err, f.ended = fault, err, time.Now()
	close(f.done)
	forget := func() {
		if fs.now[f.key] == f {
			delete(fs.now, f.key)
		}
	}
	if !f.failed() && !f.key.forced {
		forget()
		return
	}
	time.AfterFunc(keepLanded, func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		forget()
	})
}
