// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// addWith stores n bytes with options.
func (s *shelf) addWith(t *testing.T, k embedding.Key, n int64, opts store.PutOptions) error {
	t.Helper()
	u, err := s.put(k, n, opts, time.Now().Add(time.Hour))
	if err != nil || u == nil {
		return err
	}
	_, err = s.commit(u)
	return err
}

func TestSoftPinsLeaveLast(t *testing.T) {
	s := newTestShelf(t, 4*mib)
	soft := store.PutOptions{SoftPin: true}
	s.addWith(t, "soft-2", mib, soft)
	s.addWith(t, "soft-1", mib, soft) // next to what will be free
	s.touch(t, "soft-2")
	s.add(t, "a", mib)
	s.add(t, "b", mib)
	s.add(t, "c", mib)
	if got, want := s.keys(), []embedding.Key{"c", "b"}; !slices.Equal(got, want) || s.soft.Len() != 2 {
		t.Errorf("left %v and %d soft pins, want %v and 2", got, s.soft.Len(), want)
	}
	if err := s.add(t, "large", 3*mib); err != nil { // a soft pin is no pin
		t.Fatal(err)
	}
	if _, ok := s.size("soft-1"); ok || s.soft.Len() != 1 {
		t.Error("the colder soft pin stayed")
	}
}

func TestTenantQuota(t *testing.T) {
	s := newTestShelf(t, 8*mib)
	s.quota = func(name string) int64 { return map[string]int64{"small": 2 * mib}[name] }
	small, free := store.PutOptions{Tenant: "small"}, store.PutOptions{Tenant: "free"}
	s.addWith(t, "free", mib, free)
	s.addWith(t, "shared", mib, store.PutOptions{})
	for _, k := range []embedding.Key{"a", "b", "c"} {
		if err := s.addWith(t, k, mib, small); err != nil {
			t.Fatalf("add(%s): %v", k, err)
		}
	}
	if got, want := s.keys(), []embedding.Key{"c", "b", "shared", "free"}; !slices.Equal(got, want) {
		t.Errorf("objects %v, want %v: a quota costs its tenant alone", got, want)
	}
	if err := s.addWith(t, "large", 2*mib+1, small); err == nil || !strings.Contains(err.Error(), `the quota of tenant "small" is 2097152`) {
		t.Errorf("object over the quota: %v", err)
	}
	b, _, _ := s.read("b", mib, true)
	if err := s.addWith(t, "d", 2*mib, small); !errors.Is(err, errNoRoom) || s.n.evictions != 1 {
		t.Errorf("more than is not in use: %v, with %d evictions; want errNoRoom, and the one from before", err, s.n.evictions)
	}
	c, _, _ := s.read("c", mib, true)
	if err := s.addWith(t, "d", mib, small); !errors.Is(err, errNoRoom) {
		t.Errorf("quota in use: %v, want errNoRoom", err)
	}
	s.done(b)
	s.done(c)
	// An upload counts until it ends.
	u, err := s.put("u", 2*mib, small, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.addWith(t, "d", mib, small); !errors.Is(err, errNoRoom) {
		t.Errorf("quota taken by an upload: %v, want errNoRoom", err)
	}
	s.abort(u)
	if err := s.addWith(t, "d", mib, small); err != nil {
		t.Errorf("after the upload: %v", err)
	}
	for _, k := range []embedding.Key{"d", "free", "shared"} {
		s.remove(k)
	}
	if len(s.tenants) != 0 {
		t.Errorf("%d tenants are remembered without a byte", len(s.tenants))
	}
}

func TestWatermarks(t *testing.T) {
	s := newTestShelf(t, 100<<10)
	for i := range 97 {
		s.add(t, embedding.Key([]byte{'k', byte(i)}), 1<<10)
	}
	if s.tidy(time.Now()); len(s.objects) != 97 {
		t.Errorf("%d objects at the high watermark, want 97", len(s.objects))
	}
	s.add(t, "k", 1<<10)
	s.tidy(time.Now())
	if n := len(s.objects); n != 94 {
		t.Errorf("%d objects, want to be down at the low watermark, 94", n)
	}
	if _, ok := s.size("k"); !ok {
		t.Error("the newest object left")
	}
}

// newTestLocal returns a Store in this process, and its client's memory.
func newTestLocal(t *testing.T) (l *Local, a *arena.Arena, end func()) {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "test", Bytes: mib})
	if err != nil {
		t.Fatal(err)
	}
	if l, err = NewLocal(Config{MaxBytes: mib, Logger: quiet}, a); err != nil {
		t.Fatal(err)
	}
	return l, a, func() {
		if err := errors.Join(l.Close(), a.Close()); err != nil {
			t.Error(err)
		}
	}
}

// An object past its time is a miss at once, and its memory comes back without anybody asking.
func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, end := newTestLocal(t)
		defer end()
		b := filled(t, a, 1000, 1)
		defer b.Release()
		for k, ttl := range map[embedding.Key]time.Duration{"short": time.Minute, "long": time.Hour, "ever": 0, "tiny": time.Nanosecond} {
			if err := l.Put(t.Context(), k, b, store.PutOptions{TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		there := func(want ...bool) {
			t.Helper()
			states, err := l.Exists(t.Context(), []embedding.Key{"tiny", "short", "long", "ever"})
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range states {
				if s.Present != want[i] {
					t.Errorf("key %d there: %v, want %v", i, s.Present, want[i])
				}
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		there(false, true, true, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := l.Server().Stats(); st.Expired != 2 || st.Objects != 2 || st.Bytes != 2000 {
			t.Errorf("after a minute: %+v, want two objects of 1000 bytes", st)
		}
		there(false, false, true, true)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		there(false, false, false, true)
	})
}

// A reader keeps an object that expires meanwhile.
func TestExpiryUnderARead(t *testing.T) {
	s := newTestShelf(t, mib)
	s.addWith(t, "a", 1000, store.PutOptions{TTL: time.Hour})
	o, _, st := s.read("a", 1000, true)
	if st != statusOK {
		t.Fatalf("status %v", st)
	}
	if next := s.tidy(time.Now().Add(2 * time.Hour)); !next.IsZero() || len(s.expiry) != 0 {
		t.Errorf("next expiry %v with %d due", next, len(s.expiry))
	}
	if o.buf.Len() != 1000 || s.used != 1000 {
		t.Errorf("%d bytes in use, want those of the reader", s.used)
	}
	s.done(o)
	if s.used != 0 {
		t.Errorf("%d bytes in use after the reader", s.used)
	}
}

// Case C04: asking whether an object is there keeps it neither past its time nor from eviction, and removing
// what is gone is a success.
func TestProbesPinNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, end := newTestLocal(t)
		defer end()
		put := func(k embedding.Key, ttl time.Duration) {
			t.Helper()
			b := filled(t, a, 100<<10, 1)
			defer b.Release()
			if err := l.Put(t.Context(), k, b, store.PutOptions{TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		there := func(k embedding.Key) bool {
			t.Helper()
			states, err := l.Exists(t.Context(), []embedding.Key{k})
			if err != nil {
				t.Fatal(err)
			}
			return states[0].Present
		}
		put("timed", time.Second)
		for range 9 {
			time.Sleep(100 * time.Millisecond)
			if !there("timed") {
				t.Fatal("the object left before its time")
			}
		}
		time.Sleep(100 * time.Millisecond)
		if there("timed") {
			t.Error("probes kept the object past its time")
		}
		put("probed", 0)
		left := 0
		for i := range 20 {
			put(embedding.Key(rune('a'+i)), 0)
			if !there("probed") {
				left++
			}
		}
		if left < 10 {
			t.Errorf("the object was there for %d of 20 PUTs into room for 10; probes keep it warm", 20-left)
		}
		for range 2 {
			if err := l.Remove(t.Context(), []embedding.Key{"probed", "a"}); err != nil {
				t.Errorf("Remove of what is gone: %v", err)
			}
		}
	})
}
