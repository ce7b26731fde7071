// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"sync/atomic"
	"testing"

	"afterimage/internal/arena"
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
