// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"
	"testing/synctest"

	"afterimage/internal/arena"
)

// TestGrantEvicts: memory that is kept in reserve makes room for a grant, as much as it takes and before
// the grant waits; what is in use then is waited for.
func TestGrantEvicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept []*arena.Buf
		asked := 0
		w := newWorld(t, 4, func(c *ReceiverConfig) {
			for range 3 {
				b, err := c.Arena.Reserve(objectBytes(testRows))
				if err != nil {
					t.Fatal(err)
				}
				b.Commit()
				kept = append(kept, b)
			}
			c.Evict = func(n int64) (freed int64) {
				asked++
				for len(kept) > 0 && freed < n {
					freed += int64(kept[0].Len())
					kept[0].Release()
					kept = kept[1:]
				}
				return freed
			}
		})
		defer w.close()
		first := w.grant(want("0"))
		if asked != 0 || len(kept) != 3 {
			t.Errorf("asked %d times for room that was there", asked)
		}
		w.grant(want("1"), want("2"))[0].Cancel()
		if len(kept) != 1 {
			t.Errorf("%d objects kept after a grant for two, want 1", len(kept))
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.grant(want("3"), want("4"), want("5"))
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("memory in use was granted")
		default:
		}
		first[0].Cancel()
		<-done
	})
}
