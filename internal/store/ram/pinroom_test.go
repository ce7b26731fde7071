// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// A PUT that waits for loans takes the room of a pin that ends meanwhile, though nobody says so.
func TestPutSeesPinsEnd(t *testing.T) {
	a := newMapped(t, 4*mib)
	s := newShelf(a, 4*mib, 4*mib)
	var err error
	if s.sketch, s.index, err = newDirectory(4 * mib); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.close()
		s.sketch.close()
		s.index.close()
	})
	b, l := newBorrower(1, nil), modelLink(t, s)
	table, err := openTable(mapped(t, l.pins.table.mem))
	if err != nil || !s.openAccount(b, table) {
		t.Fatalf("no account: %v", err)
	}
	t.Cleanup(func() {
		s.end(b, true)
		table.buf.Release()
		l.pins.blind()
	})
	synctest.Test(t, func(t *testing.T) {
		for _, k := range []embedding.Key{"a", "b", "c"} {
			s.add(t, k, mib)
		}
		used, other := make([]store.Got, 1), make([]store.Got, 1)
		if l.reach([]store.Want{{Key: "a", Bytes: mib}}, used) != 1 || l.reach([]store.Want{{Key: "b", Bytes: mib}}, other) != 1 {
			t.Fatal("not pinned")
		}
		start := time.Now()
		time.AfterFunc(2*linger+1, other[0].Buf.Release)
		if err := s.add(t, "d", 3*mib); err != nil {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if took := time.Since(start); took != 3*linger {
			t.Errorf("the PUT waited %v, want %v", took, 3*linger)
		}
		used[0].Buf.Release()
		s.giveBack(b, nil) // ends what waits in here
	})
}
