// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// overtime ends Store calls that take longer than limit. A context.WithTimeout for each would start and stop
// a timer beside every call, which wakes a thread and costs a hit on loan a fifth of its time; here one timer
// looks at all calls, an eighth of the limit apart, while there are any.
type overtime struct {
	limit time.Duration

	mu    sync.Mutex // guards the fields below
	calls map[*timedCall]struct{}
	armed bool // the timer runs
	fresh bool // a call began since it last looked
}

// timedCall is the context of a call. It ends as one with a deadline does.
type timedCall struct {
	context.Context // of caller, with cancel
	caller          context.Context
	cancel          context.CancelFunc
	due             time.Time
	late            atomic.Bool
}

// Deadline implements context.Context.
func (c *timedCall) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.due) {
		return d, true
	}
	return c.due, true
}

// Err implements context.Context.
func (c *timedCall) Err() error {
	err := c.Context.Err()
	if err != nil && c.late.Load() {
		return context.DeadlineExceeded
	}
	return err
}

// Value implements context.Context. It passes by the context that cancel belongs to: else a context made from
// this one would end with that one, and not know that it was late.
func (c *timedCall) Value(key any) any { return c.caller.Value(key) }

// AfterFunc lets contexts made from this one end with it without a goroutine.
func (c *timedCall) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(c.Context, f) }

func newOvertime(limit time.Duration) *overtime {
	return &overtime{limit: limit, calls: make(map[*timedCall]struct{})}
}

// begin returns the context of a call, which end must be called with.
func (o *overtime) begin(ctx context.Context) *timedCall {
	c := &timedCall{caller: ctx, due: time.Now().Add(o.limit)}
	c.Context, c.cancel = context.WithCancel(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls[c], o.fresh = struct{}{}, true
	if !o.armed {
		o.armed = true
		time.AfterFunc(o.every(), o.look)
	}
	return c
}

func (o *overtime) end(c *timedCall) {
	o.mu.Lock()
	delete(o.calls, c)
	o.mu.Unlock()
	c.cancel()
}

func (o *overtime) every() time.Duration { return max(o.limit/8, time.Millisecond) }

// look cancels what is late, and comes again while there are calls.
func (o *overtime) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for c := range o.calls {
		if !now.Before(c.due) {
			c.late.Store(true)
			c.cancel()
			delete(o.calls, c)
		}
	}
	if o.armed = o.fresh || len(o.calls) > 0; o.armed {
		o.fresh = false
		time.AfterFunc(o.every(), o.look)
	}
}
