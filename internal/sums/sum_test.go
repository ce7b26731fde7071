// SPDX-License-Identifier: Apache-2.0

package sums

import (
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestSums: whatever company texts have, and however they come, each has its own sum.
func TestSums(t *testing.T) { bothWays(t, testSums) }

func testSums(t *testing.T) {
	m := New()
	var wg sync.WaitGroup
	for seed := range byte(12) {
		wg.Go(func() {
			bytes := rand.NewChaCha8([32]byte{seed})
			r := rand.New(bytes)
			for range 8 {
				text := random(bytes, r.IntN(400<<10))
				s := m.Begin()
				for at := 0; at < len(text); {
					at = min(len(text), at+r.IntN(100<<10))
					s.Grow(text[:at])
				}
				if seed%4 == 3 {
					s.Drop()
					clear(text) // as memory that is used again
					continue
				}
				if got, want := s.Sum(), sha256.Sum256(text); got != want {
					t.Errorf("a text of %d bytes: %x, want %x", len(text), got, want)
				}
				s.Drop() // does nothing
				(*Sum)(nil).Drop()
			}
		})
	}
	wg.Wait()
	if m.computing != 0 || m.Open() != 0 || len(m.waiting) != 0 {
		t.Errorf("in the end %d compute, %d are open, %d wait", m.computing, m.Open(), len(m.waiting))
	}
}

func TestOf(t *testing.T) { bothWays(t, testOf) }

func testOf(t *testing.T) {
	r := rand.NewChaCha8([32]byte{3})
	for _, n := range []int{0, 1, 55, 56, 63, 64, 65, stretch - 1, stretch, 2*stretch + 100} {
		text := random(r, n)
		if got, want := New().Of(text), sha256.Sum256(text); got != want {
			t.Errorf("a text of %d bytes: %x, want %x", n, got, want)
		}
	}
}

// TestCompany: a text that has a processor for itself is computed as it comes; others wait until as many have something as
// should be computed at once.
func TestCompany(t *testing.T) {
	m := New()
	m.processors = 2
	text := make([]byte, 4*stretch)
	left := func(when string, sums []*Sum, want ...int) {
		t.Helper()
		for i, s := range sums {
			if s.left() != want[i] {
				t.Errorf("%s: of text %d of %d, %d bytes are left, want %d", when, i, len(sums), s.left(), want[i])
			}
		}
	}
	sums := []*Sum{m.Begin()}
	sums[0].Grow(text[:stretch])
	left("alone", sums, 0)
	sums = append(sums, m.Begin())
	sums[0].Grow(text[:2*stretch])
	left("the other has nothing", sums, stretch, 0)
	sums[1].Grow(text[:worth])
	left("both have something", sums, stretch-worth, 0)
	sums = append(sums, m.Begin(), m.Begin())
	sums[1].Grow(text[:worth+stretch])
	sums[2].Grow(text[:2*worth])
	left("one has nothing yet", sums, stretch-worth, stretch, 2*worth, 0)
	sums[3].Grow(text[:worth])
	left("all have something", sums, stretch-2*worth, stretch-worth, worth, 0)
	for i, n := range []int{2 * stretch, worth + stretch, 2 * worth, worth} {
		if sums[i].Sum() != sha256.Sum256(text[:n]) {
			t.Errorf("wrong sum of text %d", i)
		}
	}
}

// TestDue: what comes is computed at once while there are processors for it, then in company only.
func TestDue(t *testing.T) {
	for _, c := range []struct {
		processors, left int
		others           []int // bytes left
		want             bool
	}{
		{1, worth - 1, nil, false},
		{1, worth, nil, true},
		{1, worth, []int{worth - 1}, false},
		{1, worth, []int{worth}, true},
		{1, worth, []int{worth, worth, 0}, false},
		{1, worth, []int{worth, worth, worth}, true},
		{4, worth, []int{0, 0}, true},
		{4, worth, []int{0, 0, 0}, false},
		{4, worth, []int{worth, 0, 0}, true},
	} {
		m := New()
		m.processors = c.processors
		s := m.Begin()
		s.text = make([]byte, c.left)
		for _, n := range c.others {
			m.Begin().text = make([]byte, n)
		}
		if m.due(s) != c.want {
			t.Errorf("due is %t with %+v", !c.want, c)
		}
		if s.busy = true; m.due(s) {
			t.Errorf("due while somebody computes, with %+v", c)
		}
	}
}

// TestSlow: a text of which little comes holds no other up for long, and counts again when it is computed.
func TestSlow(t *testing.T) {
	m := New()
	m.processors = 2
	slow, fast := m.Begin(), m.Begin()
	text := make([]byte, 6*stretch)
	left := func(when string, ofSlow, ofFast int) {
		t.Helper()
		if slow.left() != ofSlow || fast.left() != ofFast {
			t.Errorf("%s: %d and %d bytes are left, want %d and %d", when, slow.left(), fast.left(), ofSlow, ofFast)
		}
	}
	slow.Grow(text[:worth-1])
	fast.Grow(text[:4*stretch-worth])
	left("as much as is waited for", worth-1, 4*stretch-worth)
	fast.Grow(text[:4*stretch])
	left("more than that", worth-1, 0)
	slow.Grow(text[:worth])
	left("the slow one has something", worth, 0)
	fast.Grow(text[:4*stretch+worth])
	left("both have something", 0, 0)
	fast.Grow(text[:5*stretch])
	left("the slow one counts again", 0, stretch-worth)
	slow.Sum()
	slow = m.Begin()
	fast.Grow(text)
	left("another has begun", 0, 2*stretch-worth)
}

// TestTeam: a text is computed with those of which most is left: with one other, or with three.
func TestTeam(t *testing.T) {
	for _, c := range []struct {
		others []int // bytes left
		want   []int // of the others, by their places
	}{
		{nil, nil},
		{[]int{worth - 1}, nil},
		{[]int{worth}, []int{0}},
		{[]int{worth, stretch}, []int{1}}, // three would take as long as four
		{[]int{worth, stretch, worth + 1}, []int{1, 2, 0}},
		{[]int{5 * worth, 2 * worth, 3 * worth, 6 * worth, 4 * worth}, []int{3, 0, 4}},
	} {
		m := New()
		s := m.Begin()
		busy := m.Begin()
		busy.text, busy.busy = make([]byte, 9*stretch), true
		all := []*Sum{s}
		for _, n := range c.others {
			o := m.Begin()
			o.text = make([]byte, n)
			all = append(all, o)
		}
		want := []*Sum{s}
		for _, i := range c.want {
			want = append(want, all[i+1])
		}
		team, n := m.team(s)
		if got := team[:n]; !slices.Equal(got, want) {
			t.Errorf("others with %v bytes: a team of %d", c.others, n)
			for i, o := range got {
				t.Logf("%d: text %d", i, slices.Index(all, o)-1)
			}
		}
	}
}

// TestDrop: a sum that is given up while another goroutine computes of it waits for that.
func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		s := m.Begin()
		s.text, s.busy = make([]byte, stretch), true
		dropped := make(chan struct{})
		go func() { s.Drop(); close(dropped) }()
		synctest.Wait()
		select {
		case <-dropped:
			t.Error("did not wait")
		default:
		}
		m.mu.Lock()
		s.took(1)
		m.mu.Unlock()
		<-dropped
		if _, n := m.team(m.Begin()); n > 1 {
			t.Error("a sum that was given up is taken along")
		}
	})
}
