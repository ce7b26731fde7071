// SPDX-License-Identifier: Apache-2.0

package testkit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/publish"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// Original: a view of a 64-byte storage is charged 64 bytes; the limit on items holds; both are free after
// the reap. Here a Buf of 40 bytes keeps 64 of the arena, and ends by itself.
func TestPublicationBudgetChargesAndReleasesBackingStorage(t *testing.T) {
	for limit, admitted := range map[int64]float64{63: 0, 64: 1} {
		f := newFleet(t)
		w := f.worker(func(c *config) { c.publish.MaxPendingBytes = limit })
		gate := make(chan struct{})
		f.store.Set(testkit.Exists, testkit.Fault{Hold: gate})
		w.publish(f.item("a", 1), 1) // 24 + 16 bytes
		if got := w.pendingBytes(); got != 64*admitted {
			t.Errorf("limit %d: %v bytes charged, want %v", limit, got, 64*admitted)
		}
		close(gate)
		w.flush()
		if w.pendingBytes() != 0 || w.pendingItems() != 0 || f.held() != 0 {
			t.Errorf("limit %d: %v bytes and %v items charged, %d bytes held after the end", limit, w.pendingBytes(), w.pendingItems(), f.held())
		}
		if n := w.counted(publish.Stored); n != admitted {
			t.Errorf("limit %d: %v stored, want %v", limit, n, admitted)
		}
	}
	f := newFleet(t)
	w := f.worker(func(c *config) { c.publish.MaxPendingItems = 1 })
	gate := make(chan struct{})
	f.store.Set(testkit.Exists, testkit.Fault{Hold: gate})
	w.publish(f.item("a", 1), 1)
	w.publish(f.item("b", 1), 1)
	if n := w.counted(publish.FullItems); n != 1 {
		t.Errorf("%v refused for the limit of items, want 1", n)
	}
	close(gate)
	w.flush()
}

// Original: siblings of one storage are charged once, each counts as an item, a known id and one over the
// limit are refused, and the bytes are back only after the last of them, in either order of outcomes.
func TestSharedStorageBudgetIsReleasedAfterLastPublication(t *testing.T) {
	for name, second := range map[string]error{"ok": nil, "rejected": store.ErrRejected} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				w := f.worker(func(c *config) { c.publish.MaxPendingBytes, c.publish.Timeout = 64, time.Hour })
				g := gate{f: f}
				g.next(nil)
				buf, m := f.object(f.item("a", 1), 1)
				for _, id := range []embedding.Identifier{"a", "b", "a"} {
					w.publisher.Publish(f.ns.Key(id), buf, m)
				}
				buf.Release()
				w.publish(f.item("c", 1), 1) // a storage of its own
				expect := func(items, bytes float64) {
					t.Helper()
					if w.pendingItems() != items || w.pendingBytes() != bytes {
						t.Errorf("%v items and %v bytes charged, want %v and %v", w.pendingItems(), w.pendingBytes(), items, bytes)
					}
				}
				expect(2, 64)
				if w.counted(publish.Duplicate) != 1 || w.counted(publish.FullBytes) != 1 {
					t.Errorf("%v refused as known, %v for the limit; want 1 and 1", w.counted(publish.Duplicate), w.counted(publish.FullBytes))
				}
				synctest.Wait() // the first PUT runs
				g.next(second)
				expect(1, 64)
				g.next(nil)
				expect(0, 0)
				if f.held() != 0 {
					t.Errorf("%d bytes held after the last", f.held())
				}
			})
		})
	}
}
