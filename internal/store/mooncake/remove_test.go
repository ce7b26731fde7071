// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// Keys are removed together, each with an outcome of its own: what somebody reads stays for a while, hidden, and
// holds up no other.
func TestRemoveMany(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{LeaseTTL: 1500 * time.Millisecond})
	a := newArena(t, 4<<20)
	c := open(t, Config{Addr: m.Addr(), RemoveWait: time.Millisecond}, a)
	keys := []embedding.Key{"", key(1), key(2), key(3), key(4), "never there"}
	for i := 1; i <= 4; i++ {
		mustPut(t, c, a, key(i), 1000, byte(i))
	}
	if err := get(t, c, key(2), 1000, 2); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(t.Context(), keys); !errors.Is(err, store.ErrRejected) {
		t.Errorf("Remove with a wrong key and one that is read: %v, want ErrRejected", err)
	}
	if st := c.Stats(); st.Remove.Calls != 1 || st.Remove.OK != 4 || st.Remove.Rejected != 2 || st.Doomed != 1 {
		t.Errorf("counted %+v and %d doomed, want 1 call, 4 removed, 2 rejected, of which 1 is doomed", st.Remove, st.Doomed)
	}
	for i := 1; i <= 4; i++ {
		if ok, err := exists(t, c, key(i)); ok || err != nil {
			t.Errorf("key %d after its removal: %v, %v", i, ok, err)
		}
	}
	eventually(t, "the one that was read is removed", func() bool { return c.Stats().Doomed == 0 })
}

// One call removes all, up to its bound.
func TestRemoveCalls(t *testing.T) {
	f, c, _ := startWithFake(t)
	for _, tc := range []struct{ keys, calls int }{{0, 0}, {1, 1}, {maxRemoveKeys, 1}, {maxRemoveKeys + 1, 2}} {
		keys := make([]embedding.Key, tc.keys)
		for i := range keys {
			keys[i] = embedding.Key(fmt.Sprint(i))
		}
		before := f.count(fnRemove)
		if err := c.Remove(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		if n := f.count(fnRemove) - before; n != tc.calls {
			t.Errorf("%d keys: %d calls, want %d", tc.keys, n, tc.calls)
		}
	}
}
