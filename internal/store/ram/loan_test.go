// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// lending is a Store and the path to it; both sides lend in every build.
type lending struct {
	testing.TB
	path string
	srv  *Server
	stop func()
}

func newLending(t testing.TB, bytes int64) *lending {
	t.Helper()
	l := &lending{TB: t, path: socket(t)}
	l.srv, l.stop = serve(t, l.path, Config{MaxBytes: bytes, MaxObjectBytes: bytes, Mapped: true})
	return l
}

// client returns a client with an arena of its own.
func (l *lending) client(bytes int64) (*Client, *arena.Arena) {
	l.Helper()
	a := newMapped(l, bytes)
	c := dial(l, ClientConfig{Path: l.path, Arena: a, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	if c.link.Load() == nil {
		l.Fatal("no link between mapped arenas")
	}
	return c, a
}

// full leaves no place for clients that come, so that they ask for every object.
func (l *lending) full() {
	s := l.srv.shelf
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.taken {
		s.taken[i] = true
	}
}

// settled waits until nothing is on loan, being read or being written.
func (l *lending) settled() {
	l.Helper()
	eventually(l, "end of all loans", func() bool {
		st := l.srv.Stats()
		return st.Loans == 0 && st.LoanBytes == 0 && st.ReadingBytes == 0 && st.UploadBytes == 0
	})
}

// borrow gets one object, which must be a loan.
func borrow(t testing.TB, c *Client, k embedding.Key) *arena.Buf {
	t.Helper()
	g := c.Get(t.Context(), []store.Want{{Key: k, Bytes: 64 << 20}})[0]
	if g.Err != nil {
		t.Fatalf("Get(%s): %v", k, g.Err)
	}
	if !g.Buf.Foreign() {
		t.Fatalf("Get(%s) copied", k)
	}
	return g.Buf
}

// all reports whether b holds v alone.
func all(b *arena.Buf, v byte) bool {
	p := b.Bytes()
	return p[0] == v && bytes.Equal(p[1:], p[:len(p)-1])
}

func TestGetIsALoan(t *testing.T) {
	l := newLending(t, 16*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "k", 3*mib, 7)
	fill, err := a.Reserve(4 * mib) // a loan needs none of it
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Release()
	b, again := borrow(t, c, "k"), borrow(t, c, "k")
	if b.Len() != 3*mib || !all(b, 7) || b.Offset() != again.Offset() {
		t.Errorf("%d bytes at %d and %d", b.Len(), b.Offset(), again.Offset())
	}
	if st := l.srv.Stats(); st.Loans != 2 || st.LoanBytes != 3*mib || st.ReadingBytes != 3*mib {
		t.Errorf("Store %+v, want two loans of one object", st)
	}
	if st := c.Stats(); st.Loans != 2 || st.LoanBytes != 6*mib {
		t.Errorf("client %+v, want two loans", st)
	}
	// What is on loan outlives its entry.
	if err := c.Remove(t.Context(), []embedding.Key{"k"}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, c, newArena(t, 4*mib), "other", 2*mib, 9) // memory of another arena is streamed
	if !all(b, 7) {
		t.Error("a removed object changed under its loan")
	}
	b.Release()
	again.Release()
	l.settled()
}

// C11: loans return to 0 whatever becomes of the calls that take them.
func TestCancelledCallsLeaveNoLoans(t *testing.T) {
	l := newLending(t, 16*mib)
	l.full()
	c, a := l.client(4 * mib)
	keys := []embedding.Key{"a", "b", "c", "d"}
	for _, k := range keys {
		mustPut(t, c, a, k, 64<<10, k[0])
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for range 250 {
				ctx, cancel := context.WithCancel(t.Context())
				go func(spin int) {
					for range spin {
						_ = rand.Uint64()
					}
					cancel()
				}(rng.IntN(20000))
				wants := make([]store.Want, 3)
				for i := range wants {
					wants[i] = store.Want{Key: keys[rng.IntN(len(keys))], Bytes: 64 << 10}
				}
				for i, g := range c.Get(ctx, wants) {
					if g.Buf == nil {
						continue
					}
					if !all(g.Buf, wants[i].Key[0]) {
						t.Errorf("Get(%s) gave other bytes", wants[i].Key)
					}
					g.Buf.Release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	l.settled()
	if st := c.Stats(); st.Loans != 0 || st.Faults == 0 {
		t.Errorf("%+v, want no loans, and some calls that were cut", st)
	}
}

// Loans that sit in a cache make room for a PUT in time, and the cache keeps copies.
func TestRecallMakesRoom(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(16 * mib)
	held := cache.NewWith(cache.Config{MaxBytes: 8 * mib, Arena: a})
	defer held.Close()
	for i := range 4 {
		k := embedding.Key(rune('a' + i))
		mustPut(t, c, a, k, mib, byte(i))
		b := borrow(t, c, k)
		held.Put(k, b, embedding.Meta{})
		b.Release()
	}
	large := filled(t, a, 7*mib, 9)
	defer large.Release()
	eventually(t, "room", func() bool { // at the first try, unless the machine is very slow
		return c.Put(t.Context(), "large", large, store.PutOptions{}) == nil
	})
	for i := range 4 {
		b, _, ok := held.Get(embedding.Key(rune('a' + i)))
		if !ok {
			continue // its loan was not needed
		}
		if !all(b, byte(i)) {
			t.Errorf("entry %d changed", i)
		}
		b.Release()
	}
	if st := held.Stats(); st.Copied == 0 {
		t.Errorf("%+v, want copies of recalled loans", st)
	}
}

// Loans never hold more than half the Store: what is beyond comes as a copy.
func TestLoansHoldHalfTheStore(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(16 * mib)
	lent, copied := 0, 0
	for i := range 7 {
		k := embedding.Key(rune('a' + i))
		mustPut(t, c, a, k, mib, byte(i))
		g := c.Get(t.Context(), []store.Want{{Key: k, Bytes: mib}})[0]
		if g.Err != nil || !all(g.Buf, byte(i)) {
			t.Fatalf("object %d: %v", i, g.Err)
		}
		defer g.Buf.Release()
		if g.Buf.Foreign() {
			lent++
		} else {
			copied++
		}
	}
	if lent != 4 || copied != 3 {
		t.Errorf("%d objects lent and %d copied, want 4 and 3", lent, copied)
	}
	if st := l.srv.Stats(); st.LoanBytes != 4*mib || st.Recalls == 0 {
		t.Errorf("%+v, want 4 MiB on loan and recalls", st)
	}
}

// C09: one object twice in a batch is two loans, and lives until the last of them.
func TestOneObjectTwice(t *testing.T) {
	l := newLending(t, 4*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "a", mib, 5)
	gots := c.Get(t.Context(), []store.Want{{Key: "a", Bytes: mib}, {Key: "a", Bytes: mib}})
	gots[0].Buf.Release()
	for i := range 3 { // pushes everything out that it can
		put(t, c, a, embedding.Key(rune('m'+i)), 2*mib, 6)
	}
	if !all(gots[1].Buf, 5) {
		t.Error("an object was evicted before its second use")
	}
	gots[1].Buf.Release()
	l.settled()
}

// C01, T07: readers that hold objects for long, on loan and in the middle of a reply, see their own
// bytes while writers turn the whole Store over around them.
func TestSlowReadersUnderChurn(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	g, dialer := gatedDial(l.path)
	slow := dial(t, ClientConfig{Arena: newArena(t, 4*mib), DialFunc: dialer})
	const n = 700 << 10
	mustPut(t, c, a, "lent", n, 1)
	mustPut(t, c, a, "sent", n, 2)
	loan := borrow(t, c, "lent")
	shut := make(chan struct{})
	g.set(shut, nil)
	got := make(chan store.Got)
	go func() { got <- slow.Get(t.Context(), []store.Want{{Key: "sent", Bytes: n}})[0] }()
	<-g.waiting
	eventually(t, "the reply to be on its way", func() bool { return l.srv.Stats().Hits == 2 })
	for i := range 100 { // eight times the Store
		mustPut(t, c, a, embedding.Key(fmt.Sprint("churn", i)), n, byte(10+i))
	}
	g.set(nil, nil)
	close(shut)
	sent := <-got
	if sent.Err != nil || !all(sent.Buf, 2) {
		t.Errorf("the slow reply: %v, or other bytes", sent.Err)
	} else {
		sent.Buf.Release()
	}
	if !all(loan, 1) {
		t.Error("the loan changed")
	}
	loan.Release()
	if st := l.srv.Stats(); st.Evictions < 80 {
		t.Errorf("%d evictions, want a Store that was turned over", st.Evictions)
	}
	l.settled()
}
