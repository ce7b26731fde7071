// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"sync/atomic"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/store"
)

// What an index says that cannot be is not believed: the Store is asked.
func TestLyingIndex(t *testing.T) {
	l := newLending(t, 4*mib)
	c, a := l.client(mib)
	mustPut(t, c, a, "k", 64<<10, 7)
	s := l.srv.shelf
	s.mu.Lock()
	e := s.index.entry(s.objects["k"].entry)
	s.mu.Unlock()
	f := func(name string, word int, v uint64) {
		t.Helper()
		truth := atomic.SwapUint64(&e[word], v)
		defer atomic.StoreUint64(&e[word], truth)
		before := sent(c)
		if n, b, err := get(t, c, "k"); n != 64<<10 || b != 7 || err != nil {
			t.Errorf("%s: %d bytes of %d, %v", name, n, b, err)
		}
		if sent(c) == before {
			t.Errorf("%s: no call", name)
		}
		l.settled()
	}
	f("offset beyond the end", offsetEntry, 4*mib)
	f("absurd offset", offsetEntry, 1<<63)
	f("across the end", offsetEntry, 4*mib-1)
	f("no bytes", bytesEntry, 0)
	f("absurd bytes", bytesEntry, 1<<63)
	f("another key", entryKey, 'x')
	f("a longer key", keyBytesEntry, 1<<40)
	f("another hash", hashEntry, 1)
}

// A client that holds more loans than its table has slots asks for the others.
func TestMoreLoansThanSlots(t *testing.T) {
	l := newLending(t, 4*mib)
	c, a := l.client(mib)
	mustPut(t, c, a, "k", 1<<10, 7)
	var held []*arena.Buf
	for range tableSlots + 3 {
		held = append(held, borrow(t, c, "k"))
	}
	if st, own := l.srv.Stats(), c.Stats(); st.Loans != len(held) || st.LoanBytes != 1<<10 || own.Loans != len(held) || own.Pinned != tableSlots {
		t.Errorf("%d loans of %d bytes, %+v; want %d of one object", st.Loans, st.LoanBytes, own, len(held))
	}
	for i := range held { // in another order than they were taken
		held[(7*i)%len(held)].Release()
	}
	l.settled()
	before := sent(c)
	borrow(t, c, "k").Release()
	if sent(c) != before {
		t.Error("with free slots there is a call")
	}
}

// A slot that was written under an allowance of before pins nothing.
func TestSlotOfAnotherNumber(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "k", mib, 1)
	link := c.link.Load()
	link.mu.Lock()
	p := link.pins
	at, ok := p.index.find("k", hashOf("k"))
	if !ok {
		t.Fatal("no entry for what was stored")
	}
	p.set(topWord, 1)
	for ago, want := range []int{1, 0} {
		number := atomic.LoadUint64(p.index.allowance(p.place))>>numberShift - uint64(ago)
		p.set(slotWords, number<<numberShift|at.id)
		if n := l.srv.Stats().Loans; n != want {
			t.Errorf("%d loans by the number %d before the one in force, want %d", n, ago, want)
		}
		p.set(slotWords, 0)
		l.srv.Stats()
	}
	link.mu.Unlock()
	l.settled()
}

// An object that leaves while a client pins it is not pinned, though the numbers of allowances come round
// meanwhile, so that the client finds its own as it was.
func TestAllowancesComeRound(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "k", mib, 1)
	s, p := l.srv.shelf, c.link.Load().pins
	rounds := 0
	p.step = func(where string) {
		if where != "found" {
			return
		}
		word := p.index.allowance(p.place)
		was := atomic.LoadUint64(word)
		s.remove("k")
		s.mu.Lock()
		defer s.mu.Unlock()
		for rounds = 1; atomic.LoadUint64(word) != was; rounds++ {
			s.syncLocked()
		}
	}
	if n, v, err := get(t, c, "k"); !errors.Is(err, store.ErrMiss) {
		t.Errorf("%d bytes of %d, %v; want a miss", n, v, err)
	}
	if rounds != 1<<16 {
		t.Errorf("the number came round in %d steps, want %d", rounds, 1<<16)
	}
	l.settled()
}
