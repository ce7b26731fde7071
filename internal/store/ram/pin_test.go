// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// sent returns how many requests a client has sent.
func sent(c *Client) uint64 { return c.nextID.Load() }

// What the index and the sketch tell takes no call, and counts as if it had.
func TestGetWithoutACall(t *testing.T) {
	l := newLending(t, 16*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "k", mib, 7)
	before := sent(c)
	states, err := c.Exists(t.Context(), []embedding.Key{"k", "absent"})
	if err != nil || !states[0].Present || states[0].Bytes != mib || states[1].Present {
		t.Errorf("%+v, %v", states, err)
	}
	gots := c.Get(t.Context(), []store.Want{{Key: "k", Bytes: mib, Exact: true}, {Key: "absent", Bytes: mib}, {Key: "k", Bytes: 2 * mib}})
	if !errors.Is(gots[1].Err, store.ErrMiss) {
		t.Errorf("absent: %v", gots[1].Err)
	}
	if st := l.srv.Stats(); st.Gets != 3 || st.Hits != 2 || st.Misses != 1 || st.Lent != 2 || st.Loans != 2 || st.LoanBytes != mib {
		t.Errorf("%+v, want 3 gets, 2 hits, 2 loans of one object", st)
	}
	for _, i := range []int{0, 2} {
		if b := gots[i].Buf; b == nil || !b.Foreign() || !all(b, 7) {
			t.Fatalf("item %d: %v", i, gots[i].Err)
		}
		gots[i].Buf.Release()
	}
	if n := sent(c); n != before {
		t.Errorf("%d requests", n-before)
	}
	if st := l.srv.Stats(); st.Loans != 0 || st.LoanBytes != 0 || st.ReadingBytes != 0 {
		t.Errorf("%+v, want no loans", st)
	}
}

// What the index cannot tell is asked for: an object of another size, a long key, one that has no entry, and
// everything where there is no place for the client.
func TestGetAsksWhenNotSure(t *testing.T) {
	l := newLending(t, 16*mib)
	c, a := l.client(4 * mib)
	long := embedding.Key(strings.Repeat("k", maxIndexKey+1))
	mustPut(t, c, a, "k", mib, 7)
	mustPut(t, c, a, long, mib, 8)
	asks := func(name string, c *Client, w store.Want, wrong error) {
		t.Helper()
		before := sent(c)
		g := c.Get(t.Context(), []store.Want{w, {Key: "k", Bytes: mib}})
		if !errors.Is(g[0].Err, wrong) || g[1].Err != nil {
			t.Errorf("%s: %v, %v; want %v, none", name, g[0].Err, g[1].Err, wrong)
		}
		for _, got := range g {
			if got.Buf != nil {
				got.Buf.Release()
			}
		}
		if sent(c) == before {
			t.Errorf("%s: no call", name)
		}
	}
	asks("another size", c, store.Want{Key: "k", Bytes: mib - 1}, store.ErrRejected)
	asks("a long key", c, store.Want{Key: long, Bytes: mib}, nil)
	l.full()
	d, _ := l.client(4 * mib)
	asks("no place", d, store.Want{Key: "k", Bytes: mib}, nil)
	l.settled()
}

// The longest key of the index, one that is a multiple of a word, and keys that begin alike.
func TestIndexKeys(t *testing.T) {
	l := newLending(t, 16*mib)
	c, a := l.client(4 * mib)
	var keys []embedding.Key
	for n := range maxIndexKey {
		keys = append(keys, embedding.Key(strings.Repeat("k", n+1)))
	}
	for i, k := range keys {
		mustPut(t, c, a, k, 64+i, byte(i))
	}
	for i, k := range keys {
		if n, v, err := get(t, c, k); n != 64+i || v != byte(i) || err != nil {
			t.Errorf("key of %d bytes: %d bytes of %d, %v", len(k), n, v, err)
		}
	}
}

// Objects that find the index full are found by asking, and get an entry once there is room.
func TestFullIndex(t *testing.T) {
	l := newLending(t, 4*mib)
	c, a := l.client(4 * mib)
	const n = 4 * minEntries
	for i := range n {
		mustPut(t, c, a, embedding.Key(fmt.Sprint(i)), 1<<10, byte(i))
	}
	asked := 0
	for i := range n {
		before := sent(c)
		if _, v, err := get(t, c, embedding.Key(fmt.Sprint(i))); v != byte(i) || err != nil {
			t.Errorf("object %d: %d, %v", i, v, err)
		}
		if sent(c) != before {
			asked++
		}
	}
	if asked < n-minEntries || asked == n {
		t.Errorf("%d of %d objects were asked for, the index holds %d", asked, n, minEntries)
	}
	for i := range n - 1 {
		c.Remove(t.Context(), []embedding.Key{embedding.Key(fmt.Sprint(i))})
	}
	last := embedding.Key(fmt.Sprint(n - 1))
	get(t, c, last)
	before := sent(c)
	if _, _, err := get(t, c, last); err != nil || sent(c) != before {
		t.Errorf("%v, and %d requests for what has room in the index", err, sent(c)-before)
	}
}

// A hit without a call keeps an object warm, in order with those by call.
func TestPinsAreUses(t *testing.T) {
	l := newLending(t, 4*mib)
	c, a := l.client(4 * mib)
	l.full()
	asking, _ := l.client(mib)
	for _, k := range []embedding.Key{"a", "b", "c"} {
		mustPut(t, c, a, k, mib, 1)
	}
	borrow(t, c, "a").Release()
	borrow(t, asking, "b").Release()
	mustPut(t, c, a, "d", mib, 1) // past the high watermark: the coldest leaves ahead of need
	eventually(t, "eviction", func() bool { return l.srv.Stats().Objects == 3 })
	for k, want := range map[embedding.Key]bool{"a": true, "b": true, "c": false, "d": true} {
		if _, ok := l.srv.shelf.size(k); ok != want {
			t.Errorf("%s is there: %v, want %v", k, ok, want)
		}
	}
	mustPut(t, c, a, "e", mib, 1)
	eventually(t, "eviction", func() bool { return l.srv.Stats().Objects == 3 })
	if _, ok := l.srv.shelf.size("a"); ok {
		t.Error("a was read before b, and outlived it")
	}
}

// More hits than the ring of touches holds are all counted.
func TestManyPinsCount(t *testing.T) {
	l := newLending(t, 4*mib)
	c, a := l.client(mib)
	mustPut(t, c, a, "k", 1<<10, 1)
	const n = 5 * tableTouches
	for range n {
		borrow(t, c, "k").Release()
	}
	if st := l.srv.Stats(); st.Hits != n || st.Gets != n {
		t.Errorf("%d gets and %d hits, want %d", st.Gets, st.Hits, n)
	}
	// Before its ring was full the client had the Store look at it.
	s := l.srv.shelf
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.objects["k"]; time.Since(e.read) > 10*time.Second {
		t.Errorf("last read %v ago", time.Since(e.read))
	}
}

// An object past its time is not read, though nobody has come to drop it.
func TestPinsEndWithTTL(t *testing.T) {
	l := newLending(t, 4*mib)
	c, a := l.client(mib)
	b := filled(t, a, 64<<10, 1)
	defer b.Release()
	if err := c.Put(t.Context(), "k", b, store.PutOptions{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	link := c.link.Load()
	pin := func(now time.Time) *arena.Buf {
		link.mu.Lock()
		defer link.mu.Unlock()
		return link.pinLocked(store.Want{Key: "k", Bytes: mib}, hashOf("k"), now.UnixNano())
	}
	if b := pin(time.Now()); b == nil {
		t.Error("not pinned within its time")
	} else {
		b.Release()
	}
	if b := pin(time.Now().Add(time.Hour)); b != nil {
		t.Error("pinned past its time")
		b.Release()
	}
}

// A pin that was recalled while it was in use makes the Store look again when it ends.
func TestEndOfARecalledPin(t *testing.T) {
	l := newLending(t, 4*mib)
	c, a := l.client(mib)
	mustPut(t, c, a, "k", 64<<10, 1)
	b := borrow(t, c, "k")
	s, link := l.srv.shelf, c.link.Load()
	number := func() uint64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.tables[0].account.number
	}
	before := number()
	link.mu.Lock()
	id := link.pins.slots[0].id
	link.mu.Unlock()
	link.recall([]uint64{pinnedOnly | id})
	eventually(t, "a look after the recall", func() bool { return number() == before+1 })
	if !b.Recalled() {
		t.Error("the holder was not asked")
	}
	b.Release()
	eventually(t, "a look after the end", func() bool { return number() == before+2 })
	l.settled()
}

// From a Store that is gone nothing is taken, though its end has not been read yet.
func TestNoPinsOfADeadStore(t *testing.T) {
	l := newLending(t, 4*mib)
	c, a := l.client(mib)
	mustPut(t, c, a, "k", 64<<10, 1)
	c.link.Load().alive = &probe{gone: true}
	before := sent(c)
	borrow(t, c, "k").Release()
	if states, err := c.Exists(t.Context(), []embedding.Key{"k"}); err != nil || !states[0].Present {
		t.Errorf("%+v, %v", states, err)
	}
	if n := sent(c) - before; n != 2 {
		t.Errorf("%d requests, want one for each", n)
	}
	l.settled()
}

// Whatever two clients pin at once, loans never hold more than half the Store, and what does not fit is
// copied.
func TestPinsHoldHalfTheStore(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(16 * mib)
	d, _ := l.client(16 * mib)
	for i := range 7 {
		mustPut(t, c, a, embedding.Key(fmt.Sprint(i)), mib, byte(i))
	}
	var wg sync.WaitGroup
	for w, c := range []*Client{c, d} {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			var held []*arena.Buf
			for range 2000 {
				g := c.Get(t.Context(), []store.Want{{Key: embedding.Key(fmt.Sprint(rng.IntN(7))), Bytes: mib}})[0]
				if g.Err != nil {
					t.Error(g.Err)
					return
				}
				if held = append(held, g.Buf); len(held) > 5 {
					held[0].Release()
					held = held[1:]
				}
				if st := l.srv.Stats(); st.LoanBytes > 4*mib {
					t.Errorf("%d bytes on loan", st.LoanBytes)
				}
			}
			for _, b := range held {
				b.Release()
			}
		})
	}
	wg.Wait()
	l.settled()
}

// Room on loan that a client shares with others is not its own to use for something else.
func TestSharedPinsAreNoAllowance(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(16 * mib)
	mustPut(t, c, a, "shared", 3*mib, 1)
	mustPut(t, c, a, "other", 3*mib, 2)
	one := borrow(t, c, "shared")
	if c.Stats().Pinned != 1 {
		t.Fatal("a client that is alone asks for 3 MiB of 4")
	}
	d, _ := l.client(16 * mib)
	two := borrow(t, d, "shared")
	if st := l.srv.Stats(); st.Loans != 2 || st.LoanBytes != 3*mib {
		t.Errorf("%d loans of %d bytes, want one object twice", st.Loans, st.LoanBytes)
	}
	one.Release()
	g := c.Get(t.Context(), []store.Want{{Key: "other", Bytes: 3 * mib}})[0]
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	if st := l.srv.Stats(); st.LoanBytes > 4*mib {
		t.Errorf("%d bytes on loan of 8 MiB", st.LoanBytes)
	}
	g.Buf.Release()
	two.Release()
	l.settled()
}

// T12: whatever a client writes into its table, it pins no more than half the Store, the others are served,
// and all is well when it is gone.
func TestHostileTable(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	for i := range 7 {
		mustPut(t, c, a, embedding.Key(fmt.Sprint(i)), mib, byte(i))
	}
	bad, _ := l.client(mib)
	link := bad.link.Load()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		link.mu.Lock()
		p := link.pins
		word := atomic.LoadUint64(p.index.allowance(p.place)) &^ belowNumber
		for range 20 {
			i := rng.IntN(tableWords)
			v := []uint64{rng.Uint64(), word | uint64(rng.IntN(10)), 0, tableSlots, 1<<64 - 1}[rng.IntN(5)]
			p.set(i, v)
		}
		p.set(topWord, tableSlots)
		for i := range 10 {
			p.set(slotWords+i, word|uint64(i))
		}
		link.mu.Unlock()
		st := l.srv.Stats()
		if st.LoanBytes > 4*mib {
			t.Fatalf("%d bytes on loan", st.LoanBytes)
		}
		if rng.IntN(8) == 0 {
			if k := embedding.Key(fmt.Sprint(rng.IntN(7))); put(t, c, a, k, mib, k[0]-'0') == nil {
				if _, v, err := get(t, c, k); err == nil && v != k[0]-'0' {
					t.Fatalf("%s holds %d", k, v)
				}
			}
		}
	}
	bad.link.Load().nc.Close()
	l.settled()
}
