// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reasons for which a request was not let in.
var (
	errFull   = errors.New("too many requests wait")
	errBytes  = errors.New("the requests that wait hold too much memory")
	errWaited = errors.New("it waited too long for its turn")
)

// busyError refuses a request because the gateway has more to do than it takes on.
type busyError struct {
	reason error         // errFull, errBytes or errWaited
	retry  time.Duration // about how long requests wait at present
}

func (e *busyError) Error() string { return fmt.Sprintf("this gateway is busy: %v", e.reason) }
func (e *busyError) Unwrap() error { return e.reason }

// queue bounds the requests of one kind that are in work, and those that wait for it. Methods may be called
// from any goroutine.
type queue struct {
	maxWait time.Duration

	mu   sync.Mutex // guards line
	line *line
}

func newQueue(places int, room share, maxWait time.Duration) *queue {
	return &queue{maxWait: maxWait, line: newLine(places, room)}
}

// enter waits for a place, with a request that holds so many bytes meanwhile. After nil the caller calls leave when it
// needs the place no more. Errors are *busyError, or the cause of ctx.
func (q *queue) enter(ctx context.Context, tenant string, weight int, bytes int64) (leave func(), waited time.Duration, err error) {
	now := time.Now()
	q.mu.Lock()
	if q.line.waiting.requests == 0 && q.line.take() {
		q.mu.Unlock()
		return q.leave, 0, nil
	}
	w, err := q.line.join(tenant, weight, bytes, now)
	if err != nil {
		err = &busyError{reason: err, retry: q.delay(now)}
		q.mu.Unlock()
		return nil, 0, err
	}
	q.mu.Unlock()
	patience := time.NewTimer(q.maxWait)
	defer patience.Stop()
	err = errWaited
	select {
	case <-w.done:
		if waited = time.Since(now); w.dropped != nil {
			return nil, waited, q.busy(w.dropped)
		}
		return q.leave, waited, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-patience.C:
	}
	q.giveUp(w)
	if waited = time.Since(now); err == errWaited {
		err = q.busy(err)
	}
	return nil, waited, err
}

// giveUp takes a request out of the line, or gives the place back that it was given at that very moment.
func (q *queue) giveUp(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.line.remove(w) && w.dropped == nil {
		q.line.leave()
	}
}

func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line.leave()
}

func (q *queue) busy(reason error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return &busyError{reason: reason, retry: q.delay(time.Now())}
}

// delay is about how long requests wait at present: as long as the one in front has waited. The line is locked.
func (q *queue) delay(now time.Time) time.Duration {
	since, ok := q.line.oldest()
	if !ok {
		return time.Second
	}
	return min(max(now.Sub(since), time.Second), q.maxWait)
}

// stats returns places taken and what waits.
func (q *queue) stats() (taken int, waiting share) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.line.taken, q.line.waiting
}
