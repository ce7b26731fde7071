// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"sync"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// lender is a neighbour whose memory is on loan here.
type lender struct {
	testing.TB
	m    *arena.Mapping
	back chan int64 // offsets of returned loans
}

func newLender(t testing.TB) *lender {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "lender", Bytes: 1 << 20, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := a.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	l := &lender{TB: t, back: make(chan int64, 1000)}
	if l.m, err = arena.MapShared(f, 1<<20); err != nil {
		t.Fatal(err)
	}
	b, err := a.Reserve(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Bytes() {
		b.Bytes()[i] = byte(i >> 10)
	}
	t.Cleanup(func() {
		b.Release()
		if err := l.m.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// lend returns 1 KiB that holds i alone.
func (l *lender) lend(i int) *arena.Buf {
	l.Helper()
	b, err := l.m.Buf(int64(i)<<10, 1<<10, func() { l.back <- int64(i) })
	if err != nil {
		l.Fatal(err)
	}
	return b
}

// returned takes one loan that came back, or -1.
func (l *lender) returned() int64 {
	select {
	case i := <-l.back:
		return i
	default:
		return -1
	}
}

func memory(t testing.TB, n int64) *arena.Arena {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "own", Bytes: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func keyOf(i int) embedding.Key { return embedding.Key(rune('a' + i)) }

// putLoan gives the cache a loan that nobody else holds.
func putLoan(c *Cache, l *lender, i int) *arena.Buf {
	b := l.lend(i)
	c.Put(keyOf(i), b, embedding.Meta{Rows: i})
	b.Release()
	return b
}

func TestRecallSwapsForACopy(t *testing.T) {
	l, own := newLender(t), memory(t, 4<<10)
	c := NewWith(Config{MaxBytes: 8 << 10, Arena: own})
	defer c.Close()
	loan := putLoan(c, l, 3)
	if st := c.Stats(); st.Foreign != 1<<10 || st.Bytes != 1<<10 {
		t.Errorf("stats %+v, want 1 KiB on loan", st)
	}
	reader, _, _ := c.Get(keyOf(3)) // a request that is under way
	loan.Recall()
	if got := l.returned(); got != -1 {
		t.Errorf("loan %d ended under a request", got)
	}
	b, meta, ok := c.Get(keyOf(3))
	if !ok || b.Foreign() || b.Bytes()[1023] != 3 || meta.Rows != 3 {
		t.Fatalf("after the recall: there %v, foreign %v, rows %d; want a copy", ok, ok && b.Foreign(), meta.Rows)
	}
	b.Release()
	reader.Release()
	if got := l.returned(); got != 3 {
		t.Errorf("loan %d came back, want 3", got)
	}
	if st := c.Stats(); st.Foreign != 0 || st.Bytes != 1<<10 || st.Copied != 1 || st.Recalled != 0 {
		t.Errorf("stats %+v, want one copy", st)
	}
	if freed := c.Evict(1); freed != 1<<10 {
		t.Errorf("Evict of the copy freed %d bytes, want 1024", freed)
	}
}

func TestRecallDropsWithoutRoom(t *testing.T) {
	l := newLender(t)
	for name, own := range map[string]*arena.Arena{"no arena": nil, "full arena": memory(t, 64)} {
		c := NewWith(Config{MaxBytes: 8 << 10, Arena: own})
		loan := putLoan(c, l, 4)
		if freed := c.Evict(1 << 20); freed != 0 {
			t.Errorf("%s: Evict counts %d bytes of a loan as freed", name, freed)
		}
		loan.Recall()
		if got := l.returned(); got != 4 {
			t.Errorf("%s: loan %d came back, want 4", name, got)
		}
		if _, _, ok := c.Get(keyOf(4)); ok {
			t.Errorf("%s: the entry is still there", name)
		}
		if st := c.Stats(); st.Foreign != 0 || st.Bytes != 0 || st.Recalled != 1 {
			t.Errorf("%s: stats %+v, want one drop", name, st)
		}
		c.Close()
	}
}

func TestForeignBound(t *testing.T) {
	l, own := newLender(t), memory(t, 8<<10)
	c := NewWith(Config{MaxBytes: 8 << 10, MaxForeign: 2 << 10})
	defer c.Close()
	b, err := own.Reserve(1 << 10)
	if err != nil {
		t.Fatal(err)
	}
	b.Commit()
	c.Put("own", b, embedding.Meta{})
	b.Release()
	for i := range 4 {
		putLoan(c, l, i)
	}
	for want := range int64(2) {
		if got := l.returned(); got != want {
			t.Errorf("loan %d came back, want %d", got, want)
		}
	}
	if st := c.Stats(); st.Foreign != 2<<10 || st.Entries != 3 || st.Evictions != 2 {
		t.Errorf("stats %+v, want two loans and the own object", st)
	}
	none := NewWith(Config{MaxBytes: 8 << 10, MaxForeign: -1})
	putLoan(none, l, 5)
	if st := none.Stats(); st.Entries != 0 || st.Refused != 1 {
		t.Errorf("stats %+v, want no loan", st)
	}
}

func TestRecalledLoanIsNotTaken(t *testing.T) {
	l := newLender(t)
	c := New(8 << 10)
	b := l.lend(1)
	b.Recall()
	c.Put(keyOf(1), b, embedding.Meta{})
	if st := c.Stats(); st.Entries != 0 || st.Refused != 1 {
		t.Errorf("stats %+v, want nothing", st)
	}
	b.Release()
}

// Whatever crosses a recall, every loan comes back exactly once, and nobody reads another's bytes.
func TestRecallUnderLoad(t *testing.T) {
	l, own := newLender(t), memory(t, 4<<10)
	c := NewWith(Config{MaxBytes: 6 << 10, MaxForeign: 3 << 10, Arena: own})
	const rounds = 200
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for r := range rounds {
				i := (r + w) % 8
				b := l.lend(i)
				c.Put(keyOf(i), b, embedding.Meta{})
				if r%3 == 0 {
					b.Recall()
				}
				if got, _, ok := c.Get(keyOf(i)); ok {
					if v := got.Bytes()[512]; v != byte(i) {
						t.Errorf("object %d holds %d", i, v)
					}
					got.Release()
				}
				if r%5 == 0 {
					c.Remove(keyOf(i))
				}
				b.Release()
			}
		})
	}
	wg.Wait()
	c.Close()
	if got := len(l.back); got != 4*rounds {
		t.Errorf("%d loans came back, want %d", got, 4*rounds)
	}
	if st := c.Stats(); st.Bytes != 0 || st.Foreign != 0 {
		t.Errorf("left over: %+v", st)
	}
}
