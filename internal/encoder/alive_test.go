// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// G05: an Encoder is alive while calls end, however many there are; it is not once one does not, and is again when it
// does.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Encoder{}
		for range 10 {
			end := e.call.begin()
			time.Sleep(hangs - time.Second)
			if err := e.Alive(); err != nil {
				t.Fatalf("busy: %v", err)
			}
			end()
		}
		time.Sleep(2 * hangs)
		if err := e.Alive(); err != nil {
			t.Errorf("idle: %v", err)
		}
		end := e.call.begin()
		time.Sleep(hangs + time.Second)
		if err := e.Alive(); err == nil || !strings.Contains(err.Error(), "has not returned for 5m1s") {
			t.Errorf("a call that hangs: %v", err)
		}
		end()
		if err := e.Alive(); err != nil {
			t.Errorf("after the call: %v", err)
		}
	})
}
