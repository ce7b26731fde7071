// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{min: 100 * time.Millisecond, max: time.Second}
		cause := errors.New("nobody there")
		allowed := func(want bool) {
			t.Helper()
			if err := b.allow(); (err == nil) != want {
				t.Errorf("allow: %v, want allowed %v", err, want)
			} else if err != nil && !errors.Is(err, cause) {
				t.Errorf("refusal %q does not tell the cause", err)
			}
		}
		allowed(true)
		b.trip(cause)
		allowed(false)
		time.Sleep(100 * time.Millisecond)
		allowed(true)  // one probe
		allowed(false) // and no other beside it
		b.release()    // the probe's caller gave up: the next may try
		allowed(true)
		b.fail(cause) // twice the pause, at least 3/4 of it
		time.Sleep(140 * time.Millisecond)
		allowed(false)
		time.Sleep(60 * time.Millisecond)
		allowed(true)
		b.succeed()
		allowed(true)

		for range failLimit - 1 {
			b.fail(cause)
			allowed(true)
		}
		b.fail(cause)
		allowed(false)
		for range 10 {
			b.trip(cause)
		}
		time.Sleep(time.Second) // pauses stop growing at max
		allowed(true)
	})
}
