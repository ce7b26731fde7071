// SPDX-License-Identifier: Apache-2.0

package sums

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
)

// TestSums: whatever company texts have, and however they come, each has its own sum.
func TestSums(t *testing.T) { bothWays(t, testSums) }

func testSums(t *testing.T) {
	p := New()
	var wg sync.WaitGroup
	for seed := range byte(12) {
		wg.Go(func() {
			bytes := rand.NewChaCha8([32]byte{seed})
			r := rand.New(bytes)
			for range 8 {
				text := random(bytes, r.IntN(400<<10))
				s := p.Begin()
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
			}
		})
	}
	wg.Wait()
	if p.computing != 0 || p.Open() != 0 || len(p.waiting) != 0 {
		t.Errorf("in the end %d compute, %d are open, %d wait", p.computing, p.Open(), len(p.waiting))
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

// TestCompany: a lone text is computed as it comes; one that has company waits until the other has something too.
func TestCompany(t *testing.T) {
	p := New()
	text := make([]byte, 2*stretch)
	a := p.Begin()
	if a.Grow(text[:stretch]); a.left() != 0 {
		t.Errorf("of a lone text %d bytes are left", a.left())
	}
	b := p.Begin()
	if a.Grow(text); a.left() != stretch {
		t.Errorf("of a text whose companion has nothing %d bytes are left", a.left())
	}
	if b.Grow(text[:worth]); a.left() != stretch-worth || b.left() != 0 {
		t.Errorf("of a text and its companion %d and %d bytes are left", a.left(), b.left())
	}
	b.Drop()
	if a.Sum() != sha256.Sum256(text) {
		t.Error("wrong sum")
	}
}

// TestWait: who finds that enough compute waits, and goes on when one of them has ended.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		text := make([]byte, stretch)
		p.computing = p.most
		ends := make(chan string, 2)
		for range 2 {
			s := p.Begin()
			s.Grow(text)
			go func() { ends <- fmt.Sprintf("%x", s.Sum()) }()
		}
		synctest.Wait()
		p.mu.Lock()
		if len(p.waiting) != 2 || len(ends) != 0 {
			t.Errorf("%d wait, %d have ended", len(p.waiting), len(ends))
		}
		p.computing = 0
		p.next()
		p.mu.Unlock()
		want := fmt.Sprintf("%x", sha256.Sum256(text))
		if a, b := <-ends, <-ends; a != want || b != want {
			t.Errorf("sums %s and %s, want %s", a, b, want)
		}
	})
}

// TestDrop: a sum that is given up while another goroutine computes of it waits for that.
func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		s := p.Begin()
		s.text, s.busy = make([]byte, stretch), true
		dropped := make(chan struct{})
		go func() { s.Drop(); close(dropped) }()
		synctest.Wait()
		select {
		case <-dropped:
			t.Error("did not wait")
		default:
		}
		p.mu.Lock()
		s.took(1)
		p.mu.Unlock()
		<-dropped
		if other := p.Begin(); p.companion(other) != nil {
			t.Error("a sum that was given up is taken along")
		}
	})
}
