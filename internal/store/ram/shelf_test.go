// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

const mib = 1 << 20

func newTestShelf(t *testing.T, limit int64) *shelf {
	a := newArena(t, limit)
	s := newShelf(a, limit, limit)
	t.Cleanup(func() {
		s.close()
		if st := a.Stats(); st.Committed+st.Reserved != 0 || s.used+s.held+s.reading != 0 || s.uploads != 0 {
			t.Errorf("left over: arena %+v, used %d, held %d, reading %d, uploads %d", st, s.used, s.held, s.reading, s.uploads)
		}
	})
	return s
}

func (s *shelf) add(t *testing.T, k embedding.Key, n int64) error {
	t.Helper()
	u, err := s.put(k, n, store.PutOptions{}, time.Now().Add(time.Hour))
	if err != nil || u == nil {
		return err
	}
	_, err = s.commit(u)
	return err
}

func (s *shelf) keys() []embedding.Key {
	var ks []embedding.Key
	for e := s.lru.Front(); e != nil; e = e.Next() {
		ks = append(ks, e.Value.(*object).key)
	}
	return ks
}

func (s *shelf) touch(t *testing.T, k embedding.Key) {
	t.Helper()
	o, _, st := s.read(k, 1<<40, false)
	if st != statusOK {
		t.Fatalf("read(%s): status %d", k, st)
	}
	s.done(o)
}

func TestEvictionTakesTheColdest(t *testing.T) {
	s := newTestShelf(t, 4*mib)
	for _, k := range []embedding.Key{"a", "b", "c", "d"} {
		s.add(t, k, mib)
	}
	s.touch(t, "a")
	s.size("b") // a probe keeps nothing alive
	s.add(t, "e", mib)
	if got, want := s.keys(), []embedding.Key{"e", "a", "d", "c"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if s.n.evictions != 1 {
		t.Errorf("%d evictions, want 1", s.n.evictions)
	}
}

func TestWhatIsReadIsNotEvicted(t *testing.T) {
	s := newTestShelf(t, 2*mib)
	s.add(t, "cold", mib)
	s.add(t, "warm", mib)
	o, _, _ := s.read("cold", mib, true)
	s.touch(t, "warm")
	if err := s.add(t, "new", mib); err != nil {
		t.Fatalf("add beside a read: %v", err)
	}
	if got, want := s.keys(), []embedding.Key{"new", "cold"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	s.done(o)
}

// Case C03: a full Store of which all is in use refuses at once, and drops nothing in vain.
func TestPutThatCannotFitEvictsNothing(t *testing.T) {
	s := newTestShelf(t, 4*mib)
	for _, k := range []embedding.Key{"a", "b", "c"} {
		s.add(t, k, mib)
	}
	o, _, _ := s.read("a", mib, true)
	defer s.done(o)
	if err := s.add(t, "big", 4*mib); err == nil {
		t.Error("4 MiB were found beside 1 MiB that is read")
	}
	if s.n.evictions != 0 || s.n.rejected != 1 {
		t.Errorf("%d evictions and %d rejections, want 0 and 1", s.n.evictions, s.n.rejected)
	}
}

// A PUT for which there would be room, but for what is in use in the middle of it, drops nothing in vain
// either; one that fits beside that does.
func TestPutThatFitsNowhereEvictsNothing(t *testing.T) {
	s := newTestShelf(t, 8*mib)
	for i := range 8 {
		s.add(t, embedding.Key(rune('a'+i)), mib)
	}
	o, _, _ := s.read("d", mib, true)
	defer s.done(o)
	if err := s.add(t, "big", 5*mib); !errors.Is(err, errNoRoom) || s.n.evictions != 0 {
		t.Errorf("5 MiB beside an object in use at 3 of 8: %v, with %d evictions; want errNoRoom, and none", err, s.n.evictions)
	}
	if err := s.add(t, "fits", 4*mib); err != nil {
		t.Errorf("4 MiB behind that object: %v", err)
	}
}

// Case C03: memory is not tied to the size that it was first used for.
func TestChangeOfObjectSize(t *testing.T) {
	s := newTestShelf(t, 16*mib)
	for i := range 16 {
		s.add(t, embedding.Key(rune('a'+i)), mib)
	}
	for i := range 16 {
		s.remove(embedding.Key(rune('a' + i)))
	}
	if err := s.add(t, "large", 8*mib); err != nil {
		t.Errorf("8 MiB after 16 x 1 MiB: %v", err)
	}
}

func TestRemoveUnderARead(t *testing.T) {
	s := newTestShelf(t, 2*mib)
	s.add(t, "a", mib)
	o, _, _ := s.read("a", mib, true)
	s.remove("a")
	if _, ok := s.size("a"); ok {
		t.Error("removed object is still listed")
	}
	if err := s.add(t, "b", 2*mib); err == nil {
		t.Error("memory that is being read was given away")
	}
	s.done(o)
	if err := s.add(t, "b", 2*mib); err != nil {
		t.Errorf("memory did not come back after the read: %v", err)
	}
}

// Case C02: a commit past the deadline is refused, and a stalled writer does not hold its key.
func TestLateCommit(t *testing.T) {
	s := newTestShelf(t, 4*mib)
	late, err := s.reserve("a", mib, store.PutOptions{}, time.Now().Add(-time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.add(t, "a", mib); err != nil {
		t.Errorf("second writer of a key: %v", err)
	}
	if stored, err := s.commit(late); stored || err == nil {
		t.Errorf("late commit: stored %v, error %v", stored, err)
	}
}

// An object that is past its time is not found, though nobody has come to drop it.
func TestPastItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestShelf(t, 4*mib) // without a janitor
		u, err := s.reserve("a", mib, store.PutOptions{TTL: time.Second}, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if stored, err := s.commit(u); !stored || err != nil {
			t.Fatal(stored, err)
		}
		time.Sleep(time.Second - 1)
		if _, ok := s.size("a"); !ok {
			t.Error("gone before its time")
		}
		time.Sleep(time.Nanosecond)
		if _, ok := s.size("a"); ok || s.used != 0 {
			t.Errorf("past its time it is there: %v, with %d bytes in use", ok, s.used)
		}
	})
}

func TestFirstCommitWins(t *testing.T) {
	s := newTestShelf(t, 4*mib)
	deadline := time.Now().Add(time.Hour)
	first, _ := s.reserve("a", mib, store.PutOptions{}, deadline)
	second, _ := s.reserve("a", 2*mib, store.PutOptions{}, deadline)
	if stored, err := s.commit(second); !stored || err != nil {
		t.Errorf("commit: stored %v, error %v", stored, err)
	}
	if stored, err := s.commit(first); stored || err != nil {
		t.Errorf("commit of a key that is there: stored %v, error %v", stored, err)
	}
	if n, _ := s.size("a"); n != 2*mib {
		t.Errorf("object of %d bytes, want the one that was committed first", n)
	}
}

// A PUT of what is there takes no room, costs no other object its place, and copies nothing.
func TestDuplicatePutTakesNothing(t *testing.T) {
	s := newTestShelf(t, 2*mib)
	s.add(t, "a", mib)
	s.add(t, "b", mib)
	u, err := s.put("a", mib, store.PutOptions{}, time.Now().Add(time.Hour))
	if u != nil || err != nil {
		t.Errorf("room %v, error %v; want neither", u, err)
	}
	if s.n.duplicates != 1 || s.n.evictions != 0 || len(s.objects) != 2 {
		t.Errorf("%+v with %d objects", s.n, len(s.objects))
	}
}

func TestFeedTellsOfLostEvents(t *testing.T) {
	f := newFeed()
	sub := f.subscribe()
	for range 3 * feedDepth {
		f.publish("stored", "k")
	}
	if len(sub.events) != feedDepth {
		t.Fatalf("%d events queued, want %d", len(sub.events), feedDepth)
	}
	var last uint64
	gap := false
	for range feedDepth {
		e := <-sub.events
		gap = e.Kind == "resync"
		last = e.Seq
	}
	if !gap {
		t.Error("the queue overflowed and its last event is no Resync")
	}
	f.publish("removed", "k")
	if e := <-sub.events; e.Kind != "removed" || e.Seq <= last {
		t.Errorf("after the queue was read: %+v", e)
	}
	f.unsubscribe(sub)
}
