// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// scoped puts a prefix before every key, so that many checks can use one cluster, each an empty Store.
type scoped struct {
	store.Store
	prefix string
}

func (s scoped) key(k embedding.Key) embedding.Key {
	if k == "" {
		return k // stays wrong
	}
	return embedding.Key(s.prefix) + k
}

func (s scoped) keys(keys []embedding.Key) []embedding.Key {
	out := make([]embedding.Key, len(keys))
	for i, k := range keys {
		out[i] = s.key(k)
	}
	return out
}

func (s scoped) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	return s.Store.Exists(ctx, s.keys(keys))
}

func (s scoped) Get(ctx context.Context, wants []store.Want) []store.Got {
	out := make([]store.Want, len(wants))
	for i, w := range wants {
		w.Key = s.key(w.Key)
		out[i] = w
	}
	return s.Store.Get(ctx, out)
}

func (s scoped) Put(ctx context.Context, k embedding.Key, b *arena.Buf, o store.PutOptions) error {
	return s.Store.Put(ctx, s.key(k), b, o)
}

func (s scoped) Remove(ctx context.Context, keys []embedding.Key) error {
	return s.Store.Remove(ctx, s.keys(keys))
}

// The suite runs against a real master and mooncake_client. Remove waits for the leases, which are
// short here.
func TestContract(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{LeaseTTL: 200 * time.Millisecond})
	var n atomic.Int64
	testkit.StoreContract(t, func(t *testing.T) testkit.StoreUnderTest {
		a := newArena(t, 16<<20)
		c, err := Open(t.Context(), Config{Addr: m.Addr(), RemoveWait: 20 * time.Second, Logger: quiet}, a)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		return testkit.StoreUnderTest{Store: scoped{c, fmt.Sprintf("%d/", n.Add(1))}, Arena: a}
	})
}
