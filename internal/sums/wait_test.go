// SPDX-License-Identifier: Apache-2.0

package sums

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestNew: half of the processors compute, and never only one.
func TestNew(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for n, want := range map[int]int{1: 2, 2: 2, 4: 2, 8: 4} {
		runtime.GOMAXPROCS(n)
		if m := New(); m.processors != n || m.most != want {
			t.Errorf("of %d processors %d compute, want %d of %d", m.processors, m.most, want, n)
		}
	}
}

// TestWait: who finds that enough compute waits, and goes on when one of them has ended.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		text := make([]byte, stretch)
		m.computing = m.most
		ends := make(chan string, 2)
		for range 2 {
			s := m.Begin()
			s.Grow(text)
			go func() { ends <- fmt.Sprintf("%x", s.Sum()) }()
		}
		synctest.Wait()
		m.mu.Lock()
		if len(m.waiting) != 2 || len(ends) != 0 {
			t.Errorf("%d wait, %d have ended", len(m.waiting), len(ends))
		}
		m.computing = 0
		m.next()
		m.mu.Unlock()
		want := fmt.Sprintf("%x", sha256.Sum256(text))
		if a, b := <-ends, <-ends; a != want || b != want {
			t.Errorf("sums %s and %s, want %s", a, b, want)
		}
	})
}

// TestWaitTogether: when places become free at once, as many of those that wait go on.
func TestWaitTogether(t *testing.T) {
	defer func(f func(*lanes, int, int), b bool) { standIn, sideBySide = f, b }(standIn, sideBySide)
	synctest.Test(t, func(t *testing.T) {
		const places = 2
		var computing atomic.Int32
		goOn := make(chan struct{})
		sideBySide, standIn = true, func(*lanes, int, int) {
			computing.Add(1)
			<-goOn
		}
		m := New()
		m.most, m.computing = places, places
		text := make([]byte, worth-1) // too short to be taken along
		for range places + 1 {
			s := m.Begin()
			s.Grow(text)
			go s.Sum()
		}
		synctest.Wait()
		m.mu.Lock()
		for range places {
			m.computing--
			m.next()
		}
		m.mu.Unlock()
		synctest.Wait()
		if n := computing.Load(); n != places {
			t.Errorf("%d compute in %d places", n, places)
		}
		close(goOn)
		synctest.Wait()
		if n := computing.Load(); n < places+1 || m.Open() > 0 {
			t.Errorf("in the end %d have computed and %d are open", n, m.Open())
		}
	})
}

// TestGrowLeaves: who has computed of a text of which more may come leaves the place to who waits for a sum.
func TestGrowLeaves(t *testing.T) {
	defer func(f func(*lanes, int, int), b bool) { standIn, sideBySide = f, b }(standIn, sideBySide)
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		sideBySide, standIn = true, func(*lanes, int, int) { <-goOn }
		m := New()
		m.processors, m.most = 8, 1
		grows, waits := m.Begin(), m.Begin()
		go grows.Grow(make([]byte, worth))
		synctest.Wait()
		waits.Grow(make([]byte, worth-1))
		go waits.Sum()
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		if m.Open() != 1 {
			t.Errorf("%d sums are open, want that of which more may come", m.Open())
			m.mu.Lock()
			m.next()
			m.mu.Unlock()
		}
	})
}

// TestBusy: the owner of a sum does not compute of it while another goroutine does.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		s := m.Begin()
		s.text, s.busy = make([]byte, stretch), true
		made := make(chan [Size]byte)
		go func() { made <- s.Sum() }()
		synctest.Wait()
		m.mu.Lock()
		if s.done != 0 {
			t.Error("did not wait")
		}
		s.took(0)
		m.mu.Unlock()
		if got := <-made; got != sha256.Sum256(s.text) {
			t.Errorf("%x", got)
		}
	})
}

// TestFree: a place that becomes free is left to those that wait, as many as there are.
func TestFree(t *testing.T) {
	m := New()
	m.processors, m.most = 8, 3
	comes := m.Begin()
	comes.text = make([]byte, stretch)
	first, taken, last := m.Begin(), m.Begin(), m.Begin()
	m.waiting, taken.busy = []*Sum{first, taken, last}, true
	for _, c := range []struct {
		computing          int
		first, last, comes bool
	}{
		{3, false, false, false},
		{2, true, false, false},
		{1, true, true, false},
		{0, true, true, true},
	} {
		m.computing = c.computing
		if m.free(first) != c.first || m.free(last) != c.last || m.free(comes) != c.comes || m.due(comes) != c.comes {
			t.Errorf("with %d that compute: %t, %t, %t and %t, want %+v", c.computing, m.free(first), m.free(last), m.free(comes), m.due(comes), c)
		}
	}
}

// TestTurns: who waits for a sum has the next place, whoever else has something to compute.
func TestTurns(t *testing.T) {
	defer func(f func(*lanes, int, int), b bool) { standIn, sideBySide = f, b }(standIn, sideBySide)
	synctest.Test(t, func(t *testing.T) {
		var order []*state // of those that compute, one at a time
		goOn := make(chan struct{})
		sideBySide, standIn = true, func(l *lanes, _, n int) {
			if n > 2 { // not the end of a text, which nobody waits for
				order = append(order, l.states[0])
				<-goOn
			}
		}
		m := New()
		m.processors, m.most = 8, 1
		long, grows, short := m.Begin(), m.Begin(), m.Begin()
		long.text, short.text = make([]byte, 2*stretch), make([]byte, 3*blockBytes)
		go long.Sum()
		synctest.Wait()
		go grows.Grow(make([]byte, worth)) // finds no place
		go short.Sum()
		synctest.Wait()
		for range 3 {
			goOn <- struct{}{}
			synctest.Wait()
		}
		close(goOn)
		synctest.Wait()
		if want := []*state{&long.state, &short.state, &long.state}; len(order) < 3 || !slices.Equal(order[:3], want) {
			t.Errorf("%d computed, in another order than the long text, the short one, the long one", len(order))
		}
	})
}
