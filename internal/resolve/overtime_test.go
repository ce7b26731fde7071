// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A call that is late ends as with a deadline, and so does what was made from it; whoever is done or was
// cancelled by its caller does not.
func TestOvertime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 80 * time.Millisecond
		type key struct{}
		o := newOvertime(limit)
		start := time.Now()
		call := o.begin(context.WithValue(t.Context(), key{}, "v"))
		derived, stop := context.WithCancel(call)
		defer stop()
		ran := make(chan struct{})
		context.AfterFunc(call, func() { close(ran) })
		if d, ok := call.Deadline(); !ok || d != start.Add(limit) || call.Value(key{}) != "v" {
			t.Errorf("deadline %v, value %v", d, call.Value(key{}))
		}
		<-derived.Done()
		if took := time.Since(start); took < limit || took > limit+o.every() {
			t.Errorf("ended after %v, want %v to %v", took, limit, limit+o.every())
		}
		<-ran
		for _, ctx := range []context.Context{call, derived} {
			if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want a deadline", err)
			}
		}
		o.end(call)

		caller, cancel := context.WithCancel(t.Context())
		call = o.begin(caller)
		cancel()
		<-call.Done()
		if err := call.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled by its caller: %v", err)
		}
		o.end(call)
	})
}

// The timer rests while there are no calls, and is there for the next one.
func TestOvertimeRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOvertime(80 * time.Millisecond)
		for range 3 {
			o.end(o.begin(t.Context()))
			time.Sleep(3 * o.every())
			o.mu.Lock()
			if o.armed || len(o.calls) > 0 {
				t.Errorf("armed %v with %d calls, want rest", o.armed, len(o.calls))
			}
			o.mu.Unlock()
		}
		call := o.begin(t.Context())
		<-call.Done()
		o.end(call)
	})
}
