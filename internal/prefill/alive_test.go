// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/batch"
	"afterimage/internal/engine"
	"afterimage/internal/openai"
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
		time.Sleep(stalls)
		if a := q.Announcement(); !a.Ready || q.Ready() != nil {
			t.Errorf("after %v it is not ready: %s", stalls, a.Reason)
		}
		time.Sleep(time.Second)
		if a := q.Announcement(); !a.Stalled() || q.Ready() == nil || q.Alive() != nil {
			t.Errorf("after more than %v: ready %v, %q; alive: %v", stalls, a.Ready, a.Reason, q.Alive())
		}
		time.Sleep(hangs - stalls)
		if err := q.Alive(); err == nil || !strings.Contains(err.Error(), "has not returned") {
			t.Errorf("a call that hangs: %v", err)
		}
		<-done
		synctest.Wait()
		if err := errors.Join(q.Alive(), q.Ready()); err != nil || !q.Announcement().Ready {
			t.Errorf("after the call: %v", err)
		}
	})
}

// stuckForm is a text model that reads grammars for long.
type stuckForm struct {
	fakeText
	call time.Duration
}

func (s stuckForm) Constrain(string) (engine.Constraint, error) {
	time.Sleep(s.call) // on the test's clock
	return nil, errors.New("not a grammar")
}

// A grammar that the engine does not come back from is such a call, while others are read and refused.
func TestAliveWhileGrammarsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWorker(t, stuckForm{fakeText{template: plainTemplate}, 90 * time.Second})
		q := newWorker(t, stuckForm{fakeText{template: plainTemplate}, time.Hour})
		opts := &openai.Options{Sampling: openai.Sampling{Format: openai.Format{JSON: true}}}
		check := func(p *Prefill) {
			if _, err := p.checkSampling(opts); err == nil || !strings.Contains(err.Error(), "not a grammar") {
				t.Error(err)
			}
		}
		for i := range 4 {
			time.AfterFunc(time.Duration(i)*time.Minute, func() { check(p) })
		}
		go check(q)
		for i := range 4 * 60 {
			time.Sleep(time.Second)
			if err := p.Alive(); err != nil {
				t.Fatalf("busy with grammars for 90 s each: %v", err)
			}
			if err := q.Alive(); (err != nil) != (time.Duration(i+1)*time.Second > hangs) {
				t.Fatalf("after %d s with one grammar: %v", i+1, err)
			}
		}
		time.Sleep(time.Hour)
		if err := q.Alive(); err != nil {
			t.Errorf("after the call: %v", err)
		}
	})
}

// An answer that ends because of its form is its client's fault: no gateway may take it for the worker's.
func TestSlowFormIsTheClients(t *testing.T) {
	err := (&answer{}).fault(fmt.Errorf("batch: %w", engine.ErrFormSlow))
	if e := openai.AsError(err); e.Status != 400 || !strings.Contains(e.Message, "response_format: ") {
		t.Errorf("%+v", e)
	}
}
