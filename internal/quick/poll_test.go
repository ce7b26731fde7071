// SPDX-License-Identifier: Apache-2.0

package quick

import (
	"runtime"
	"testing"
	"time"
)

// brief is a budget that ends with the first look, and long one that no test waits for the end of.
const (
	brief = time.Nanosecond
	long  = time.Hour
)

func never() bool  { return false }
func always() bool { return true }

// polls reports whether the next wait is polled, and has it end as ready says.
func polls(p *Poll, ready func() bool) bool {
	looked := false
	p.Wait(0, func() bool { looked = true; return ready() })
	return looked
}

func TestWaitEndsWithTheAnswer(t *testing.T) {
	p := (&Policy{budget: long}).Poll()
	looks := 0
	if !p.Wait(0, func() bool { looks++; return looks == 5 }) || looks != 5 {
		t.Errorf("%d looks for an answer that came with the fifth", looks)
	}
	if paid, lost := p.policy.Polled(); paid != 1 || lost != 0 {
		t.Errorf("counted %d that paid and %d in vain, want 1 and 0", paid, lost)
	}
}

func TestWaitEndsWithItsBudget(t *testing.T) {
	p := (&Policy{budget: time.Millisecond}).Poll()
	start := time.Now()
	if p.Wait(maxLeast, never) {
		t.Fatal("an answer that never came")
	}
	if took := time.Since(start); took < maxLeast+time.Millisecond {
		t.Errorf("gave up after %v, want the %v that the answer takes and a budget of 1 ms", took, maxLeast)
	}
	if paid, lost := p.policy.Polled(); paid != 0 || lost != 1 {
		t.Errorf("counted %d that paid and %d in vain, want 0 and 1", paid, lost)
	}
}

func TestWaitsInVainArePolledLessAndLess(t *testing.T) {
	p := (&Policy{budget: brief}).Poll()
	for _, want := range []int{4, 16, 64, 64} {
		if !polls(&p, never) {
			t.Fatal("a wait was not polled that should be")
		}
		for n := range want {
			if polls(&p, never) {
				t.Fatalf("polled after %d waits that were not, want %d", n, want)
			}
		}
	}
}

func TestWaitsThatPayAreForgivenOneInVain(t *testing.T) {
	p := (&Policy{budget: long}).Poll()
	for range 100 { // more than is remembered
		if !polls(&p, always) {
			t.Fatal("a wait was not polled after one that paid")
		}
	}
	p.policy = &Policy{budget: brief}
	for n := range 3 {
		if !polls(&p, never) {
			t.Fatalf("not polled after %d waits in vain", n)
		}
	}
	if polls(&p, never) {
		t.Error("polled after three waits in vain")
	}
}

func TestNobodyPolls(t *testing.T) {
	for name, p := range map[string]Poll{
		"zero value":   {},
		"no policy":    (*Policy)(nil).Poll(),
		"no budget":    NewPolicy(0).Poll(),
		"switched off": NewPolicy(-1).Poll(),
	} {
		if polls(&p, always) {
			t.Errorf("%s: a wait was polled", name)
		}
	}
	p := (&Policy{budget: long}).Poll()
	if p.Wait(maxLeast+1, always) {
		t.Error("polled for an answer that takes long")
	}
}

func TestNobodyPollsWithOneThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if p := NewPolicy(long).Poll(); polls(&p, always) {
		t.Error("a wait was polled that keeps the only thread")
	}
}
