// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"fmt"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Whoever follows a Store knows what was there before it came, what comes and goes, and that a Store which was started
// again has nothing.
func TestFollow(t *testing.T) {
	path, a := socket(t), newArena(t, mib)
	_, stop := serve(t, path, Config{})
	c := dial(t, ClientConfig{Path: path, Arena: a, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	const n = maxBatch + 3 // more than a page
	for i := range n {
		mustPut(t, c, a, embedding.Key(fmt.Sprint("k", i)), 100, 1)
	}
	known, follow := map[embedding.Key]bool{}, c.Follow(t.Context())
	until := func(what string, done func() bool) {
		t.Helper()
		for late := time.After(time.Minute); !done(); {
			select {
			case e := <-follow:
				switch e.Kind {
				case store.Resync:
					clear(known)
				case store.Stored:
					known[e.Key] = true
				case store.Removed:
					delete(known, e.Key)
				}
			case <-late:
				t.Fatalf("%s: not within a minute; %d keys are known", what, len(known))
			}
		}
	}
	until("what was there", func() bool { return len(known) == n })
	mustPut(t, c, a, "new", 100, 1)
	if err := c.Remove(t.Context(), []embedding.Key{"k0"}); err != nil {
		t.Fatal(err)
	}
	until("what comes and goes", func() bool { return known["new"] && !known["k0"] })
	stop()
	serve(t, path, Config{})
	until("another Store", func() bool { return len(known) == 0 })
	eventually(t, "the Store is there again", func() bool { return put(t, c, a, "first", 100, 1) == nil })
	until("of another Store", func() bool { return len(known) == 1 && known["first"] })
}
