// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// watch ends calls that are late. Deadlines of the connections themselves would do the same, but each one
// that is set wakes a thread for the runtime's timers, which on 2 cores runs beside the process that is to
// answer: a call of 15 us takes 40 every other time. So a step of a call only notes when it is due, and
// one timer looks at the notes, an eighth of the timeout apart, while there are any.
type watch struct {
	every time.Duration
	start time.Time
	armed atomic.Bool // the timer runs

	mu     sync.Mutex
	limits map[*limit]struct{}
}

// limit is the time that one connection has for its next step.
type limit struct {
	w   *watch
	nc  net.Conn
	due atomic.Int64 // ns since w.start; 0 is never
}

// missed is the due of a connection that was late. It stays so.
const missed = -1

// newWatch makes a watch for steps that take about timeout at most.
func newWatch(timeout time.Duration) *watch {
	return &watch{every: max(timeout/8, time.Millisecond), start: time.Now(), limits: make(map[*limit]struct{})}
}

// add watches nc, with no step in progress, until end.
func (w *watch) add(nc net.Conn) *limit {
	l := &limit{w: w, nc: nc}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits[l] = struct{}{}
	return l
}

// end ceases to watch the connection.
func (l *limit) end() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	delete(l.w.limits, l)
}

// within gives the next step so much time. What it does after that fails as after a deadline.
func (l *limit) within(d time.Duration) {
	if l.due.Swap(int64(time.Since(l.w.start)+d)) == missed {
		l.due.Store(missed)
	}
	l.w.arm()
}

// met says that the step is done. An error says that it was late, and that the connection is of no more
// use.
func (l *limit) met() error {
	if l.due.Swap(0) == missed {
		l.due.Store(missed)
		return os.ErrDeadlineExceeded
	}
	return nil
}

// arm starts the timer unless it runs.
func (w *watch) arm() {
	if !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		time.AfterFunc(w.every, w.tick)
	}
}

// tick looks after all steps in progress, and comes again while there are any.
func (w *watch) tick() {
	if w.look() {
		time.AfterFunc(w.every, w.tick)
		return
	}
	w.armed.Store(false)
	if w.look() { // it began before it could see that nobody looks
		w.arm()
	}
}

// look ends what is late, and reports whether steps are in progress.
func (w *watch) look() (busy bool) {
	now := int64(time.Since(w.start))
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.limits {
		due := l.due.Load()
		if due <= 0 {
			continue
		}
		busy = true
		if now > due && l.due.CompareAndSwap(due, missed) {
			l.nc.SetDeadline(time.Unix(1, 0))
		}
	}
	return busy
}

// cut closes all connections.
func (w *watch) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.limits {
		l.nc.Close()
	}
}
