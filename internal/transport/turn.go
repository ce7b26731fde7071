// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"time"

	"afterimage/internal/arena"
)

// turn implements Turn.
type turn struct {
	r      *receiver
	waited time.Duration // for the turn and for memory
	asked  bool          // for memory
}

// Turn implements Receiver.
func (r *receiver) Turn(ctx context.Context) (Turn, error) { return r.lineUp(ctx) }

// lineUp returns when the caller is at the head of the line.
func (r *receiver) lineUp(ctx context.Context) (*turn, error) {
	if r.line.TryAcquire(1) {
		return &turn{r: r}, nil
	}
	start := time.Now() // this wait counts: it is time without memory
	ctx, done, err := r.during(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.line.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	return &turn{r: r, waited: time.Since(start)}, nil
}

// Leave implements Turn.
func (t *turn) Leave() {
	if t.asked {
		t.r.m.grantWait.Observe(t.waited.Seconds())
	}
	t.r.line.Release(1)
}

// Grant implements Turn.
func (t *turn) Grant(ctx context.Context, wants []Want) ([]Ticket, error) {
	total, err := t.r.checkWants(wants)
	if err != nil {
		return nil, err
	}
	t.asked = true
	out, err := t.r.issue(wants)
	if !errors.Is(err, arena.ErrFull) {
		return out, err
	}
	start := time.Now()
	ctx, done, err := t.r.during(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	out, err = t.r.wait(ctx, wants)
	t.waited += time.Since(start)
	if err != nil {
		return nil, t.r.noRoom(err, len(wants), total, t.waited)
	}
	return out, nil
}

// during begins a wait in line. Its context ends with ctx or, with ErrClosed, when the Receiver closes. Close
// waits until done is called.
func (r *receiver) during(ctx context.Context) (_ context.Context, done func(), err error) {
	if !r.enter() {
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.ctx, func() { cancel(ErrClosed) })
	r.m.inLine.Inc()
	return ctx, func() {
		r.m.inLine.Dec()
		stop()
		cancel(nil)
		r.wg.Done()
	}, nil
}

// enter makes Close wait for the caller, who must call wg.Done, unless it is too late for that.
func (r *receiver) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.wg.Add(1)
	}
	return !r.closed
}
