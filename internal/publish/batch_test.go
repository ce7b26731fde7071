// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// batching is a Store that takes several objects at once and fails those named.
type batching struct {
	store.Store
	mu     sync.Mutex
	calls  [][]embedding.Key
	failed map[embedding.Key]error
}

func (s *batching) PutAll(ctx context.Context, puts []store.Putting) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(puts))
	var keys []embedding.Key
	for i, p := range puts {
		keys = append(keys, p.Key)
		if errs[i] = s.failed[p.Key]; errs[i] == nil {
			errs[i] = s.Put(ctx, p.Key, p.Buf, p.Opts)
		}
	}
	s.calls = append(s.calls, keys)
	return errs
}

// batchBench is a bench whose Store is s.
func batchBench(t *testing.T, s *batching) *bench {
	return newBench(t, func(c *Config) {
		s.Store = c.Store
		guard, err := store.NewGuard(store.GuardConfig{Store: s, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		c.Store = guard
	})
}

// awaitFirst waits until a publication is at the Store, so that further ones queue.
func (b *bench) awaitFirst() {
	b.Helper()
	for end := time.Now().Add(10 * time.Second); b.store.Calls(testkit.Exists) == 0; runtime.Gosched() {
		if time.Now().After(end) {
			b.Fatal("no exists call in 10 s")
		}
	}
}

// What waits goes in one call, apart from what is not to be sent, and each object has an outcome of its own.
func TestBatch(t *testing.T) {
	s := &batching{failed: map[embedding.Key]error{key(4): store.ErrRejected}}
	b := batchBench(t, s)
	there, _ := b.object(key(2), 4, 1)
	if err := b.store.Put(t.Context(), key(2), there, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	there.Release()
	release := b.hold()
	defer release()
	b.publish(0, 4, 1)
	b.awaitFirst()
	for i := 1; i < 6; i++ {
		v := float32(1)
		if i == 3 {
			v = float32(math.NaN())
		}
		b.publish(i, 4, v)
	}
	release()
	b.flush()
	want := [][]embedding.Key{{key(0)}, {key(1), key(4), key(5)}}
	if fmt.Sprint(s.calls) != fmt.Sprint(want) {
		t.Errorf("PUTs %v, want %v", s.calls, want)
	}
	if n := b.store.Calls(testkit.Exists); n != 2 {
		t.Errorf("%d exists calls, want 2", n)
	}
	b.counted(Stored, 3)
	b.counted(Exists, 1)
	b.counted(NotFinite, 1)
	b.counted(Rejected, 1)
}

// A call carries so many objects at most.
func TestBatchBounds(t *testing.T) {
	s := &batching{}
	b := batchBench(t, s)
	release := b.hold()
	defer release()
	for i := range 1 + batchItems + 3 {
		b.publish(i, 4, 1)
		b.awaitFirst()
	}
	release()
	b.flush()
	var sizes []int
	for _, c := range s.calls {
		sizes = append(sizes, len(c))
	}
	if want := []int{1, batchItems, 3}; !slices.Equal(sizes, want) {
		t.Errorf("calls of %v objects, want %v", sizes, want)
	}
}
