// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// held is what the model knows of a range.
type held struct {
	buf       *Buf
	refs      int
	committed bool
	mark      byte
}

// TestProperties drives an arena with random calls. After each one: ranges in use and free ranges
// tile the region without overlap, contents are untouched, and the counters agree with the model.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 16 << 10
		a, err := New(Config{Name: "property", Bytes: capacity})
		if err != nil {
			t.Fatal(err)
		}
		m := &model{a: a}
		t.Repeat(map[string]func(*rapid.T){
			"reserve":  m.reserve,
			"commit":   m.commit,
			"abort":    m.abort,
			"retain":   m.retain,
			"release":  m.release,
			"truncate": m.truncate,
			"":         m.check,
		})
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
	a    *Arena
	held []*held
	next byte
}

func (m *model) pick(t *rapid.T) int {
	if len(m.held) == 0 {
		t.Skip("nothing held")
	}
	return rapid.IntRange(0, len(m.held)-1).Draw(t, "range")
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
	m.held = append(m.held, &held{buf: b, refs: 1, mark: m.next})
}

func (m *model) commit(t *rapid.T) {
	h := m.held[m.pick(t)]
	h.buf.Commit()
	h.committed = true
}

func (m *model) abort(t *rapid.T) {
	i := m.pick(t)
	h := m.held[i]
	h.buf.Abort()
	if h.committed {
		return
	}
	if h.refs--; h.refs == 0 {
		m.held = append(m.held[:i], m.held[i+1:]...)
	}
}

func (m *model) retain(t *rapid.T) {
	h := m.held[m.pick(t)]
	h.buf.Retain()
	h.refs++
}

func (m *model) release(t *rapid.T) {
	i := m.pick(t)
	m.held[i].buf.Release()
	if m.held[i].refs--; m.held[i].refs == 0 {
		m.held = append(m.held[:i], m.held[i+1:]...)
	}
}

func (m *model) truncate(t *rapid.T) {
	h := m.held[m.pick(t)]
	if h.committed {
		t.Skip("committed")
	}
	h.buf.Truncate(rapid.IntRange(1, h.buf.Len()).Draw(t, "to"))
}

// drop releases all references of a range.
func (m *model) drop(i int) {
	for range m.held[i].refs {
		m.held[i].buf.Release()
	}
	m.held = append(m.held[:i], m.held[i+1:]...)
}

func (m *model) check(t *rapid.T) {
	var reserved, committed int64
	owners := make([]int, m.a.st.Capacity/align) // of each granule
	for i, h := range m.held {
		size := roundUp(int64(h.buf.Len()))
		if h.committed {
			committed += size
		} else {
			reserved += size
		}
		for g := h.buf.Offset() / align; g < (h.buf.Offset()+size)/align; g++ {
			owners[g]++
		}
		if at := differs(h.buf.Bytes(), h.mark); at >= 0 {
			t.Fatalf("range %d: byte %d was overwritten", i, at)
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
	if st := m.a.Stats(); st.Reserved != reserved || st.Committed != committed || st.Peak < reserved+committed {
		t.Fatalf("%+v, want %d reserved and %d committed", st, reserved, committed)
	}
}

// checkFreeList checks order, gaps, heap order and maxima, and returns {offset, size} of all ranges.
func checkFreeList(t *rapid.T, f *freeList) [][2]int64 {
	var spans [][2]int64
	var walk func(i int32) int64
	walk = func(i int32) int64 {
		if i == 0 {
			return 0
		}
		n := f.nodes[i]
		left := walk(n.left)
		if k := len(spans); k > 0 && spans[k-1][0]+spans[k-1][1] >= n.off {
			t.Fatalf("free ranges %v and [%d, +%d) touch", spans[k-1], n.off, n.size)
		}
		spans = append(spans, [2]int64{n.off, n.size})
		right := walk(n.right)
		if n.max != max(n.size, left, right) || f.nodes[n.left].prio > n.prio || f.nodes[n.right].prio > n.prio {
			t.Fatalf("node [%d, +%d): max %d, children %d and %d, or priorities out of order", n.off, n.size, n.max, left, right)
		}
		return n.max
	}
	walk(f.root)
	return spans
}
