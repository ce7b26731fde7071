// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/arena"
)

// TestReleaseOvertakesState releases a state before it is kept, and one that is.
func TestReleaseOvertakesState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := arena.New(arena.Config{Name: "states", Bytes: 4096})
		if err != nil {
			t.Fatal(err)
		}
		s := &states{p: &Prefill{cfg: Config{PrepareTTL: time.Minute}}, byName: map[string]*state{}}
		s.released = newReleased(&s.mu)
		keep := func(name string) error {
			buf, err := mem.Reserve(64)
			if err != nil {
				t.Fatal(err)
			}
			buf.Commit()
			return s.keep(name, buf)
		}
		s.release("gone")
		if err := keep("gone"); err == nil || mem.Stats().Committed != 0 {
			t.Errorf("a state that was released is kept (%v): %+v", err, mem.Stats())
		}
		if err := keep("there"); err != nil {
			t.Fatal(err)
		}
		if s.release("there"); s.size() != 0 || mem.Stats().Committed != 0 {
			t.Errorf("%d states are kept after their release: %+v", s.size(), mem.Stats())
		}
		s.release("old")
		time.Sleep(2 * time.Minute) // on the test's clock
		synctest.Wait()
		if err := keep("old"); err != nil {
			t.Errorf("a release is remembered for ever: %v", err)
		}
		s.close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}
