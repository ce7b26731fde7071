// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/batch"
	"afterimage/internal/engine"
)

// stuckText is a text model whose native calls take long.
type stuckText struct {
	fakeText
	call time.Duration
}

func (s stuckText) Runner() engine.Runner { return stuckRunner{call: s.call} }

type stuckRunner struct {
	fakeRunner
	call time.Duration
}

func (s stuckRunner) PrefillTokens(int, int, []int32, bool) error {
	time.Sleep(s.call) // on the test's clock
	return nil
}

func (stuckRunner) Truncate(int, int, int) bool { return true }
func (stuckRunner) Logits(int) []float32        { return []float32{1} }

// G05: a worker is alive while it is busy, however long; it is not once a call does not return, and is
// again when the call does.
func TestAliveWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWorker(t, stuckText{fakeText{template: plainTemplate}, 90 * time.Second})
		ask := func(n int) {
			for range n {
				prompt := []batch.Part{{Tokens: make([]int32, 20)}}
				if err := p.sched.Ask(t.Context(), prompt, func([]float32) (int32, bool, error) { return 0, false, nil }); err != nil {
					t.Error(err)
				}
			}
		}
		go ask(4)
		for range 5 * 60 {
			time.Sleep(time.Second)
			if err := p.Alive(); err != nil {
				t.Fatalf("busy with calls of 90 s: %v", err)
			}
		}
		time.Sleep(5 * time.Minute)

		q := newWorker(t, stuckText{fakeText{template: plainTemplate}, time.Hour})
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.sched.Ask(t.Context(), []batch.Part{{Tokens: make([]int32, 20)}}, func([]float32) (int32, bool, error) { return 0, false, nil })
		}()
		time.Sleep(hangs + time.Second)
		if err := q.Alive(); err == nil || !strings.Contains(err.Error(), "has not returned") {
			t.Errorf("a call that hangs: %v", err)
		}
		<-done
		synctest.Wait()
		if err := q.Alive(); err != nil {
			t.Errorf("after the call: %v", err)
		}
	})
}
