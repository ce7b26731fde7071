// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A worker that says a moment early that the time of a request is over is waited out; one that says so long before, as
// by a limit of its own, is not, and neither is one that fails otherwise.
func TestEnded(t *testing.T) {
	late := &refusedError{err: &workerError{status: 504}}
	for name, c := range map[string]struct {
		at    time.Duration
		err   error
		ended bool
	}{
		"just before": {9999 * time.Millisecond, late, true},
		"long before": {5 * time.Second, late, false},
		"of no time":  {9999 * time.Millisecond, &refusedError{err: &workerError{status: 503}}, false},
		"afterwards":  {10 * time.Second, errors.New("cut"), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			time.Sleep(c.at)
			synctest.Wait()
			if got := ended(ctx, c.err); got != c.ended {
				t.Errorf("%s: ended is %v", name, got)
			}
		})
	}
	if ended(t.Context(), late) {
		t.Error("a request without a deadline has ended")
	}
}
