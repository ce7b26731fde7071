// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// shelfModel drives a shelf with random calls of several borrowers.
type shelfModel struct {
	s       *shelf
	uploads []*upload
	reads   []*object
	who     []*modelBorrower
	next    int
	steps   int
	mark    map[*object]byte
}

type modelBorrower struct {
	*borrower
	loans []*loan // that the client knows of
	lane  *track
	lanes uint64
	link  *link        // its side of pinning
	pins  []*arena.Buf // likewise
}

// TestShelfProperties: after every call the counters agree with what is there, no range is used twice,
// whatever is lent or read is as it was stored, and loans hold at most half. In the end every byte is
// free.
func TestShelfProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 64 << 10
		a, err := arena.New(arena.Config{Name: "property", Bytes: limit, Mapped: true})
		if err != nil {
			t.Fatal(err)
		}
		m := &shelfModel{s: newShelf(a, limit, limit), mark: map[*object]byte{}}
		m.s.quota = func(string) int64 { return limit / 2 }
		m.s.sketch, m.s.index, err = newDirectory(limit)
		if err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"connect": m.connect, "disconnect": m.disconnect,
			"reserve": m.reserve, "commit": m.commit, "abort": m.abort,
			"read": m.read, "done": m.done, "remove": m.remove, "tidy": m.tidy,
			"lend": m.lend, "return": m.giveBack, "return pins": m.giveBackPins, "void": m.void, "recall": m.recall,
			"pin": m.pin, "unpin": m.unpin, "interrupted pin": m.interruptedPin,
			"pin and lose": m.pinAndLose, "lend and pin": m.lendAndPin,
			"": m.look,
		})
		m.finish(t)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func pick[T any](t *rapid.T, what string, xs []T) int {
	if len(xs) == 0 {
		t.Skip("no " + what)
	}
	return rapid.IntRange(0, len(xs)-1).Draw(t, what)
}

func remove[T any](xs []T, i int) []T { return append(xs[:i:i], xs[i+1:]...) }

func (m *shelfModel) connect(t *rapid.T) {
	if len(m.who) == 3 {
		t.Skip("enough")
	}
	m.next++
	b := &modelBorrower{borrower: newBorrower(uint64(m.next), nil), link: modelLink(t, m.s)}
	table, err := openTable(mapped(t, b.link.pins.table.mem))
	if err != nil || !m.s.openAccount(b.borrower, table) {
		t.Fatalf("no account: %v", err)
	}
	b.link.pins.place = b.account.place
	b.join(m.s)
	m.who = append(m.who, b)
}

func (b *modelBorrower) join(s *shelf) {
	b.lanes++
	b.lane = s.join(b.borrower, b.lanes)
}

func (m *shelfModel) disconnect(t *rapid.T) {
	i := pick(t, "borrower", m.who)
	m.end(m.who[i])
	m.who = remove(m.who, i)
}

// end is the death of a client.
func (m *shelfModel) end(b *modelBorrower) {
	m.s.end(b.borrower, true)
	b.account.buf.Release()
	for _, buf := range b.pins {
		buf.Release()
	}
	b.link.over = true
	b.link.pins.blind()
	b.link.memory.Close()
}

func key(t *rapid.T) embedding.Key {
	return embedding.Key(fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "key")))
}

func (m *shelfModel) reserve(t *rapid.T) {
	opts := store.PutOptions{SoftPin: rapid.Bool().Draw(t, "soft"), Tenant: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "tenant")}
	if rapid.IntRange(0, 3).Draw(t, "ttl") == 0 {
		opts.TTL = time.Nanosecond // over by the time that anybody looks
	}
	before := m.s.n.evictions
	u, err := m.s.reserve(key(t), int64(rapid.IntRange(1, 60<<10).Draw(t, "bytes")), opts, time.Now().Add(time.Hour))
	if n := m.s.n.evictions - before; err != nil && n > 0 {
		t.Fatalf("%d objects lost their place to one that was refused: %v", n, err)
	}
	if err == nil && u != nil {
		m.uploads = append(m.uploads, u)
	}
}

func (m *shelfModel) commit(t *rapid.T) { m.finishUpload(t, pick(t, "upload", m.uploads)) }

func (m *shelfModel) finishUpload(t *rapid.T, i int) {
	u := m.uploads[i]
	m.uploads = remove(m.uploads, i)
	m.next++
	fillWith(u.buf.Bytes(), byte(m.next))
	mark := byte(m.next)
	stored, err := m.s.commit(u)
	if err != nil {
		t.Fatal(err)
	}
	if o := m.s.objects[u.key]; stored {
		m.mark[o] = mark
		if m.s.sketch.absent(hashOf(u.key)) {
			t.Fatalf("%s is stored and absent", u.key)
		}
	}
}

func (m *shelfModel) abort(t *rapid.T) {
	i := pick(t, "upload", m.uploads)
	m.s.abort(m.uploads[i])
	m.uploads = remove(m.uploads, i)
}

func (m *shelfModel) read(t *rapid.T) {
	if o, _, st := m.s.read(key(t), limitless, false); st == statusOK {
		m.reads = append(m.reads, o)
	}
}

const limitless = 1 << 40

func (m *shelfModel) done(t *rapid.T) {
	i := pick(t, "read", m.reads)
	m.s.done(m.reads[i])
	m.reads = remove(m.reads, i)
}

func (m *shelfModel) remove(t *rapid.T) { m.s.remove(key(t)) }

func (m *shelfModel) tidy(*rapid.T) { m.s.tidy(time.Now()) }

// lend is a GET whose answer reaches the client.
func (m *shelfModel) lend(t *rapid.T) {
	m.lendKeys(t, m.who[pick(t, "borrower", m.who)], key(t), key(t))
}

func (m *shelfModel) lendKeys(t *rapid.T, b *modelBorrower, keys ...embedding.Key) {
	m.next++
	var wishes []wish
	for _, k := range keys {
		wishes = append(wishes, wish{key: k, most: limitless})
	}
	offers, ok := m.s.lend(b.lane, uint64(m.next), wishes, nil)
	if !ok {
		t.Fatal("a live lane lends nothing")
	}
	for _, f := range offers {
		if f.loan != nil {
			b.loans = append(b.loans, f.loan)
		} else if f.o != nil {
			m.reads = append(m.reads, f.o)
		}
	}
}

func (m *shelfModel) giveBack(t *rapid.T) {
	b := m.who[pick(t, "borrower", m.who)]
	i := pick(t, "loan", b.loans)
	id := b.loans[i].id
	b.loans = remove(b.loans, i)
	m.s.giveBack(b.borrower, []uint64{id, id, id + 1000}) // twice, and one that is not there
}

// giveBackPins says of pins that they end, which is for the table to say.
func (m *shelfModel) giveBackPins(t *rapid.T) {
	b := m.who[pick(t, "borrower", m.who)]
	var ids []uint64
	for id := range b.borrower.loans {
		if id&pinnedOnly != 0 {
			ids = append(ids, id)
		}
	}
	m.s.giveBack(b.borrower, ids)
}

// void is a GET that the client gave up, before or after the Store answered.
func (m *shelfModel) void(t *rapid.T) {
	b := m.who[pick(t, "borrower", m.who)]
	m.next++
	request := uint64(m.next)
	early := rapid.Bool().Draw(t, "early")
	if early {
		m.s.laneEnded(b.borrower, b.lane.id, request)
	}
	offers, ok := m.s.lend(b.lane, request, []wish{{key: key(t), most: limitless}}, nil)
	if ok == early {
		t.Fatalf("lane ended before the request: %v, and lends: %v", early, ok)
	}
	for _, f := range offers {
		if f.o != nil && f.loan == nil {
			m.s.done(f.o)
		}
	}
	m.s.leave(b.lane)
	if !early {
		m.s.laneEnded(b.borrower, b.lane.id, request)
	}
	if len(b.borrower.lanes) != 0 {
		t.Fatal("an ended lane is remembered")
	}
	b.join(m.s)
}

func (m *shelfModel) recall(t *rapid.T) {
	m.s.recallFor(int64(rapid.IntRange(1, 60<<10).Draw(t, "bytes")))
	for _, b := range m.who {
		for _, id := range m.s.takeRecalls(b.borrower) {
			if id > m.s.nextLoan && id&pinnedOnly == 0 {
				t.Fatalf("loan %d is recalled and was never given", id)
			}
			b.link.recall([]uint64{id})
		}
	}
}

// look checks after every third call: it makes the Store look at its clients' tables, which other calls have to
// do by themselves.
func (m *shelfModel) look(t *rapid.T) {
	if m.steps++; m.steps%3 == 0 {
		m.check(t)
	}
}

func (m *shelfModel) check(t *rapid.T) {
	s := m.s
	s.mu.Lock()
	s.syncLocked()
	s.mu.Unlock()
	var used, lent, reading, held int64
	loans := 0
	live := map[*object]bool{}
	for _, o := range s.objects {
		live[o] = true
	}
	for _, o := range m.reads {
		live[o] = true
	}
	for _, b := range m.who {
		if len(b.borrower.loans) != len(b.loans)+len(b.pins) {
			t.Fatalf("borrower %d has %d loans, its client knows %d and %d pins", b.id, len(b.borrower.loans), len(b.loans), len(b.pins))
		}
		for _, l := range b.borrower.loans {
			live[l.o] = true
		}
		loans += len(b.borrower.loans)
	}
	for o := range live {
		used += int64(o.buf.Len())
		if len(o.loans) > 0 {
			lent += int64(o.buf.Len())
		}
		if o.readers > 0 {
			reading += int64(o.buf.Len())
		}
		if b := o.buf.Bytes(); b[0] != m.mark[o] || b[len(b)-1] != m.mark[o] {
			t.Fatalf("%s holds %d and %d, want %d", o.key, b[0], b[len(b)-1], m.mark[o])
		}
	}
	for _, u := range m.uploads {
		held += int64(u.buf.Len())
	}
	if s.used != used || s.lentSum != lent || s.reading != reading || s.held != held || s.loans != loans || s.uploads != len(m.uploads) {
		t.Fatalf("counted used %d, lent %d, reading %d, held %d, %d loans, %d uploads; want %d, %d, %d, %d, %d, %d",
			s.used, s.lentSum, s.reading, s.held, s.loans, s.uploads, used, lent, reading, held, loans, len(m.uploads))
	}
	if used+held > s.limit || lent > s.limit/2 {
		t.Fatalf("%d in use and %d on loan of %d", used+held, lent, s.limit)
	}
	if st := s.arena.Stats(); st.Committed < used || st.Reserved < held || st.Quarantined != 0 {
		t.Fatalf("arena %+v with %d and %d in use", st, used, held)
	}
	if s.lru.Len()+s.soft.Len() != len(s.objects) {
		t.Fatalf("%d and %d objects in order, %d there", s.lru.Len(), s.soft.Len(), len(s.objects))
	}
}

// finish lets everything go.
func (m *shelfModel) finish(t *rapid.T) {
	for len(m.who) > 0 {
		m.end(m.who[0])
		m.who = remove(m.who, 0)
	}
	for _, o := range m.reads {
		m.s.done(o)
	}
	for _, u := range m.uploads {
		m.s.abort(u)
	}
	m.reads, m.uploads = nil, nil
	m.check(t)
	m.s.close()
	if st := m.s.arena.Stats(); st.Committed+st.Reserved+st.Quarantined != 0 || len(m.s.tenants) != 0 || len(m.s.expiry) != 0 || m.s.lent.Len()+m.s.asked.Len() != 0 {
		t.Fatalf("left over: %+v, %d tenants, %d to expire, %d on loan", st, len(m.s.tenants), len(m.s.expiry), m.s.lent.Len()+m.s.asked.Len())
	}
	for i, w := range m.s.sketch.w {
		if w != 0 {
			t.Fatalf("word %d of the sketch is %#x in an empty Store", i, w)
		}
	}
	for i, o := range m.s.index.owner {
		if o != nil || m.s.index.entry(i)[stateEntry]&1 != 0 {
			t.Fatalf("entry %d is shown in an empty Store", i)
		}
	}
	if err := errors.Join(m.s.sketch.close(), m.s.index.close()); err != nil {
		t.Fatal(err)
	}
}
