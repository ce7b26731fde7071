// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"testing"
	"unsafe"

	"afterimage/internal/embedding"
)

// The sketch never forgets what was shown within a period, takes few strangers for acquaintances, and
// does not grow.
func TestSketchBounds(t *testing.T) {
	s := newSketch()
	if got := unsafe.Sizeof(*s); got > 256<<10+64 {
		t.Errorf("a sketch takes %d bytes, want 256 KiB", got)
	}
	const shown = 8 * halveEvery
	strangers := 0
	for i := range shown {
		if s.sight(key(i)) > 0 {
			strangers++
		}
		if back := i - halveEvery/2; back >= 0 && i%97 == 0 {
			if s.sight(key(back)) == 0 {
				t.Fatalf("key %d was forgotten after %d sightings", back, halveEvery/2)
			}
		}
	}
	if rate := float64(strangers) / shown; rate > 0.024 {
		t.Errorf("%.2f %% of new keys taken for known ones, want at most 2.4 %%", 100*rate)
	}
	before := s.sight("old")
	for i := range 3 * halveEvery {
		s.sight(key(shown + i))
	}
	if got := s.sight("old"); before != 0 || got > 1 {
		t.Errorf("seen %d times, then after three periods %d times; want 0 and, but for chance, 0", before, got)
	}
}

func TestSketchCounts(t *testing.T) {
	s := newSketch()
	for want := range 20 {
		if got := s.sight("k"); got != want {
			t.Errorf("sighting %d: %d before", want+1, got)
		}
	}
	for range 1000 {
		s.sight("k")
	}
	if got := s.sight("k"); got < 100 {
		t.Errorf("%d sightings of many: the counter wrapped", got)
	}
	s = newSketch()
	s.sight("k")
	s.halve()
	if got := s.sight("k"); got != 1 {
		t.Errorf("%d sightings before, after a halving, want 1", got)
	}
}

func TestSecondSighting(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Admission = SecondSighting })
	b.publish(1, 3, 1)
	b.counted(FirstSighting, 1)
	b.publish(1, 3, 1)
	b.flush()
	b.counted(Stored, 1)
	b.publish(1, 3, 1) // made again: the Store may have lost it
	b.flush()
	b.counted(Exists, 1)

	// A hit in the local cache is a sighting too; only the second one asks the Store.
	sighted := func(i int) {
		buf, m := b.object(key(i), 3, 1)
		defer buf.Release()
		b.p.Sighted("", embedding.Key(key(i)), buf, m)
	}
	b.publish(2, 3, 1)
	for range 5 {
		sighted(2)
		b.flush()
	}
	b.counted(FirstSighting, 2)
	b.counted(Stored, 2)
	b.counted(Exists, 1)

	b = newBench(t, nil)
	sighted(3)
	b.flush()
	b.counted(Stored, 0)
}
