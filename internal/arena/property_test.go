// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// held is what the model knows of a range.
type held struct {
	buf       *Buf
	refs      int // of quarantines and loans, too
	committed bool
	mark      byte
	tokens    []Token // quarantines in force
	own       int     // refs that are the model's to release
}

// loaned is a loan that a neighbour holds: its Buf, and the range that it keeps alive.
type loaned struct {
	buf  *Buf
	of   *held
	refs int
}

// TestProperties drives an arena and a neighbour that borrows from it with random calls. After each
// one: ranges in use and free ranges tile the region without overlap, contents are untouched, for the
// neighbour too, and the counters agree with the model. In the end every byte is free.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 16 << 10
		a, err := New(Config{Name: "property", Bytes: capacity, Mapped: true})
		if err != nil {
			t.Fatal(err)
		}
		m := &model{a: a}
		t.Repeat(map[string]func(*rapid.T){
			"reserve":    m.reserve,
			"reserveAll": m.reserveAll,
			"commit":     m.commit,
			"abort":      m.abort,
			"retain":     m.retain,
			"release":    m.release,
			"truncate":   m.truncate,
			"quarantine": m.quarantine,
			"reclaim":    m.reclaim,
			"lend":       m.lend,
			"share":      m.share,
			"return":     m.giveBack,
			"disconnect": m.disconnect,
			"":           m.check,
		})
		m.disconnect(t)
		for len(m.loans) > 0 {
			m.returnLoan(0)
		}
		for len(m.held) > 0 {
			m.drop(0)
		}
		m.check(t)
		if st := a.Stats(); st.Largest != capacity {
			t.Fatalf("all released: %+v", st)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

type model struct {
	a       *Arena
	held    []*held
	next    byte
	mapping *Mapping // the neighbour's; nil while it is not connected
	loans   []*loaned
}

// pick chooses a range of which the model itself holds a reference.
func (m *model) pick(t *rapid.T) *held {
	var own []*held
	for _, h := range m.held {
		if h.own > 0 {
			own = append(own, h)
		}
	}
	if len(own) == 0 {
		t.Skip("nothing held")
	}
	return own[rapid.IntRange(0, len(own)-1).Draw(t, "range")]
}

// less takes one reference off the model's account of a range.
func (m *model) less(h *held, own bool) {
	h.refs--
	if own {
		h.own--
	}
	if h.refs == 0 {
		m.held = slices.DeleteFunc(m.held, func(x *held) bool { return x == h })
	}
}

func (m *model) reserve(t *rapid.T) {
	n := rapid.IntRange(1, 4<<10).Draw(t, "bytes")
	largest := m.a.Stats().Largest
	b, err := m.a.Reserve(n)
	if (err == nil) != (roundUp(int64(n)) <= largest) {
		t.Fatalf("Reserve(%d) with %d in one range: %v", n, largest, err)
	}
	if err != nil {
		if !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		return
	}
	m.next++
	fill(b.Bytes(), m.next)
	m.held = append(m.held, &held{buf: b, refs: 1, own: 1, mark: m.next})
}

func (m *model) reserveAll(t *rapid.T) {
	sizes := rapid.SliceOfN(rapid.IntRange(1, 4<<10), 1, 5).Draw(t, "sizes")
	all, err := m.a.ReserveAll(sizes)
	if err != nil {
		if !errors.Is(err, ErrFull) && !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
		return
	}
	for _, b := range all {
		m.next++
		fill(b.Bytes(), m.next)
		m.held = append(m.held, &held{buf: b, refs: 1, own: 1, mark: m.next})
	}
}

func (m *model) commit(t *rapid.T) {
	h := m.pick(t)
	if len(h.tokens) > 0 || h.buf.isolated.Load() {
		t.Skip("was in quarantine")
	}
	h.buf.Commit()
	h.committed = true
}

func (m *model) abort(t *rapid.T) {
	h := m.pick(t)
	nothing := h.committed || h.buf.isolated.Load()
	h.buf.Abort()
	if !nothing {
		m.less(h, true)
	}
}

func (m *model) retain(t *rapid.T) {
	h := m.pick(t)
	h.buf.Retain()
	h.refs++
	h.own++
}

func (m *model) release(t *rapid.T) {
	h := m.pick(t)
	h.buf.Release()
	m.less(h, true)
}

func (m *model) truncate(t *rapid.T) {
	h := m.pick(t)
	if h.committed || h.buf.isolated.Load() {
		t.Skip("final")
	}
	h.buf.Truncate(rapid.IntRange(1, h.buf.Len()).Draw(t, "to"))
}

func (m *model) quarantine(t *rapid.T) {
	h := m.pick(t)
	h.tokens = append(h.tokens, h.buf.Quarantine("property"))
	h.own--
}

func (m *model) reclaim(t *rapid.T) {
	for _, h := range m.held {
		if len(h.tokens) == 0 {
			continue
		}
		i := rapid.IntRange(0, len(h.tokens)-1).Draw(t, "token")
		if !m.a.Reclaim(h.tokens[i]) || m.a.Reclaim(h.tokens[i]) {
			t.Fatalf("token %d was in force not exactly once", h.tokens[i])
		}
		h.tokens = slices.Delete(h.tokens, i, i+1)
		m.less(h, false)
		return
	}
	t.Skip("no quarantine")
}

// lend gives the neighbour, which connects if it has not yet, a committed range.
func (m *model) lend(t *rapid.T) {
	h := m.pick(t)
	if !h.committed {
		t.Skip("not committed")
	}
	if m.mapping == nil {
		f, err := m.a.Share()
		if err != nil {
			t.Fatal(err)
		}
		if m.mapping, err = MapShared(f, m.a.Stats().Capacity); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	h.buf.Retain() // the loan's
	h.refs++
	l := &loaned{of: h, refs: 1}
	var err error
	l.buf, err = m.mapping.Buf(h.buf.Offset(), int64(h.buf.Len()), func() {
		h.buf.Release()
		m.less(h, false)
	})
	if err != nil {
		t.Fatal(err)
	}
	m.loans = append(m.loans, l)
}

func (m *model) pickLoan(t *rapid.T) int {
	if len(m.loans) == 0 {
		t.Skip("no loan")
	}
	return rapid.IntRange(0, len(m.loans)-1).Draw(t, "loan")
}

func (m *model) share(t *rapid.T) {
	l := m.loans[m.pickLoan(t)]
	l.buf.Retain()
	l.refs++
}

func (m *model) giveBack(t *rapid.T) {
	i := m.pickLoan(t)
	if l := m.loans[i]; l.refs > 1 {
		l.buf.Release()
		l.refs--
		return
	}
	m.returnLoan(i)
}

// returnLoan drops all references of a loan.
func (m *model) returnLoan(i int) {
	l := m.loans[i]
	m.loans = slices.Delete(m.loans, i, i+1)
	for range l.refs {
		l.buf.Release()
	}
}

// disconnect ends the neighbour's mapping. Its loans stay readable.
func (m *model) disconnect(t *rapid.T) {
	if m.mapping == nil {
		return
	}
	if err := m.mapping.Close(); err != nil {
		t.Fatal(err)
	}
	m.mapping = nil
}

// drop releases all references of a range that is not on loan.
func (m *model) drop(i int) {
	h := m.held[i]
	for _, token := range h.tokens {
		m.a.Reclaim(token)
	}
	for range h.own {
		h.buf.Release()
	}
	m.held = slices.Delete(m.held, i, i+1)
}

func (m *model) check(t *rapid.T) {
	var reserved, committed, quarantined int64
	owners := make([]int, m.a.st.Capacity/align) // of each granule
	for i, h := range m.held {
		size := roundUp(int64(h.buf.Len()))
		switch {
		case len(h.tokens) > 0:
			quarantined += size
		case h.committed:
			committed += size
		default:
			reserved += size
		}
		for g := h.buf.Offset() / align; g < (h.buf.Offset()+size)/align; g++ {
			owners[g]++
		}
		if at := differs(h.buf.Bytes(), h.mark); at >= 0 {
			t.Fatalf("range %d: byte %d was overwritten", i, at)
		}
	}
	for _, l := range m.loans {
		if at := differs(l.buf.Bytes(), l.of.mark); at >= 0 {
			t.Fatalf("loan at %d: byte %d was overwritten", l.buf.Offset(), at)
		}
	}
	free := checkFreeList(t, &m.a.free)
	for _, s := range free {
		for g := s[0] / align; g < (s[0]+s[1])/align; g++ {
			owners[g]++
		}
	}
	for g, n := range owners {
		if n != 1 {
			t.Fatalf("granule %d has %d owners", g, n)
		}
	}
	if st := m.a.Stats(); st.Reserved != reserved || st.Committed != committed || st.Quarantined != quarantined ||
		st.Peak < reserved+committed+quarantined {
		t.Fatalf("%+v, want %d reserved, %d committed, %d in quarantine", st, reserved, committed, quarantined)
	}
}

// checkFreeList checks that the spans tile the region, that free ones do not touch and are where their size
// says, and returns {offset, size} of the free ones.
func checkFreeList(t *rapid.T, f *freeList) [][2]int64 {
	var spans [][2]int64
	end, last, listed := int64(0), int32(0), 0
	for i := first(f); i != 0; last, i = i, f.spans[i].next {
		s := f.spans[i]
		if s.off != end || s.size <= 0 || s.prev != last || s.free && f.spans[last].free {
			t.Fatalf("span %+v behind %+v, which ends at %d", s, f.spans[last], end)
		}
		if end += s.size; s.free {
			spans = append(spans, [2]int64{s.off, s.size})
		}
	}
	for row := range f.heads {
		for col, i := range f.heads[row] {
			if full := f.cols[row]>>col&1 != 0; full != (i != 0) || full && f.rows>>row&1 == 0 {
				t.Fatalf("class %d, %d: first span %d, bits %#x and %#x", row, col, i, f.rows, f.cols[row])
			}
			for ahead := int32(0); i != 0; ahead, i = i, f.spans[i].after {
				s := f.spans[i]
				if r, c := classOf(s.size); r != row || c != col || !s.free || s.ahead != ahead {
					t.Fatalf("class %d, %d has %+v behind %d", row, col, s, ahead)
				}
				listed++
			}
		}
	}
	if listed != len(spans) {
		t.Fatalf("%d free spans, %d in lists", len(spans), listed)
	}
	return spans
}

// first returns the span at offset 0.
func first(f *freeList) int32 {
	for i, s := range f.spans {
		if s.size > 0 && s.prev == 0 {
			return int32(i)
		}
	}
	return 0
}
