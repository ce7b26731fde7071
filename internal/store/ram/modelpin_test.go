// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"time"

	"pgregory.net/rapid"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// tester is a test, of rapid or not.
type tester interface {
	Fatal(...any)
	Cleanup(func())
}

// mapped is a view of a, as a process that a was shown to has.
func mapped(t tester, a *arena.Arena) *arena.Mapping {
	f, err := a.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := arena.MapShared(f, a.Stats().Capacity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// modelLink is a client's view of s.
func modelLink(t tester, s *shelf) *link {
	p, f := newPins()
	if p == nil {
		t.Fatal("no table")
	}
	defer f.Close()
	x, err := openIndex(mapped(t, s.index.mem))
	if err != nil {
		t.Fatal(err)
	}
	l := &link{c: &Client{}, memory: mapped(t, s.arena), wake: make(chan struct{}, 1), loans: map[uint64]*arena.Buf{}, pins: p.with(x, 0)}
	t.Cleanup(func() { l.memory.Close() })
	return l
}

// pin is a GET without a call.
func (m *shelfModel) pin(t *rapid.T) { m.pinKey(t, m.who[pick(t, "borrower", m.who)], key(t)) }

// pinAndLose pins an object that the Store drops before it has looked at the table again.
func (m *shelfModel) pinAndLose(t *rapid.T) {
	b := m.who[pick(t, "borrower", m.who)]
	k := m.s.all[pick(t, "object", m.s.all)].key
	m.pinKey(t, b, k)
	if rapid.Bool().Draw(t, "evict") {
		m.replace(t)
	} else {
		m.s.remove(k)
	}
	m.check(t)
}

// lendAndPin has one client pin what it can right after another was lent something.
func (m *shelfModel) lendAndPin(t *rapid.T) {
	b := m.who[pick(t, "borrower", m.who)]
	for range 3 {
		m.replace(t)
	}
	m.lendKeys(t, m.who[pick(t, "borrower", m.who)], m.s.all[pick(t, "object", m.s.all)].key)
	for _, o := range m.s.all {
		m.pinKey(t, b, o.key)
	}
	m.check(t)
}

func (m *shelfModel) pinKey(t *rapid.T, b *modelBorrower, k embedding.Key) {
	gots := make([]store.Got, 1)
	b.link.reach([]store.Want{{Key: k, Bytes: limitless}}, gots)
	if gots[0].Buf == nil {
		return
	}
	b.pins = append(b.pins, gots[0].Buf)
	o := m.s.objects[k]
	if o == nil || !o.expires.IsZero() && time.Now().After(o.expires.Add(time.Second)) {
		t.Fatalf("%s is pinned and not stored", k)
	}
	if got := gots[0].Buf; got.Offset() != o.buf.Offset() || got.Len() != o.buf.Len() || got.Bytes()[0] != m.mark[o] {
		t.Fatalf("%s is at %d, %d bytes of %d; pinned at %d, %d bytes of %d",
			k, o.buf.Offset(), o.buf.Len(), m.mark[o], got.Offset(), got.Len(), got.Bytes()[0])
	}
}

func (m *shelfModel) unpin(t *rapid.T) {
	b := m.who[pick(t, "borrower", m.who)]
	i := pick(t, "pin", b.pins)
	b.pins[i].Release()
	b.pins = remove(b.pins, i)
}

// interruptedPin lets the Store, and the others, go on between the steps of a pin.
func (m *shelfModel) interruptedPin(t *rapid.T) {
	b := m.who[pick(t, "borrower", m.who)]
	var removed bool
	b.link.pins.step = func(string) {
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			switch rapid.IntRange(0, 4).Draw(t, "call") {
			case 0:
				m.s.remove(key(t))
				removed = true
			case 1:
				m.replace(t)
				removed = true
			case 2:
				m.s.tidy(time.Now())
			case 3:
				m.s.recallFor(int64(rapid.IntRange(1, 60<<10).Draw(t, "bytes")))
			case 4:
				m.s.giveBack(b.borrower, nil)
			}
		}
	}
	defer func() { b.link.pins.step = nil }()
	k := key(t)
	gots := make([]store.Got, 1)
	b.link.reach([]store.Want{{Key: k, Bytes: limitless}}, gots)
	if gots[0].Buf == nil {
		return
	}
	b.pins = append(b.pins, gots[0].Buf)
	// Whatever happened: it is the memory of an object with this key, which check compares with its mark.
	m.s.mu.Lock()
	m.s.syncLocked()
	m.s.mu.Unlock()
	for _, l := range b.borrower.loans {
		if l.o.key == k && l.o.buf.Offset() == gots[0].Buf.Offset() {
			return
		}
	}
	t.Fatalf("%s is pinned (removed in between: %v), and the Store does not know", k, removed)
}

// replace stores something new, which evicts what it can.
func (m *shelfModel) replace(t *rapid.T) {
	u, err := m.s.reserve(key(t), int64(rapid.IntRange(1, 30<<10).Draw(t, "bytes")), store.PutOptions{}, time.Now().Add(time.Hour))
	if err == nil && u != nil {
		m.uploads = append(m.uploads, u)
		m.finishUpload(t, len(m.uploads)-1)
	}
}
