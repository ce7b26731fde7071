// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"runtime"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/quick"
)

// TestCallsLookForTheirAnswers: with a budget that nobody sees the end of, calls whose answer is not there at once end
// awake; where one thread runs at a time, none do.
func TestCallsLookForTheirAnswers(t *testing.T) {
	want := runtime.NumCPU() > 1 && runtime.GOMAXPROCS(0) > 1
	path, a := socket(t), newArena(t, 64<<20)
	serve(t, path, Config{MaxBytes: 64 << 20})
	polls := quick.NewPolicy(time.Hour)
	c := dial(t, ClientConfig{Path: path, Arena: a, Polls: polls})
	for range 10_000 {
		if err := c.Remove(t.Context(), []embedding.Key{"absent"}); err != nil {
			t.Fatal(err)
		}
		if paid, lost := polls.Polled(); lost > 0 {
			t.Fatal("a call gave up looking")
		} else if paid > 0 {
			if !want {
				t.Error("a call looked for its answer on the thread that was to give it")
			}
			return
		}
	}
	if want {
		t.Error("no call looked for its answer")
	}
}
