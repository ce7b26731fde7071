// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// putLog notes the order of PUTs.
type putLog struct {
	store.Store
	mu   sync.Mutex
	keys []embedding.Key
	last store.PutOptions
}

func (p *putLog) Put(ctx context.Context, k embedding.Key, b *arena.Buf, o store.PutOptions) error {
	p.mu.Lock()
	p.keys, p.last = append(p.keys, k), o
	p.mu.Unlock()
	return p.Store.Put(ctx, k, b, o)
}

func TestOrder(t *testing.T) {
	var log putLog
	b := newBench(t, func(c *Config) {
		log.Store = c.Store
		c.Store, c.TTL = &log, time.Hour
	})
	release := b.hold()
	var want []embedding.Key
	for _, i := range []int{5, 3, 9, 1, 7} {
		b.publish(i, 3, 1)
		want = append(want, key(i))
	}
	release()
	b.flush()
	if !slices.Equal(log.keys, want) {
		t.Errorf("order of PUTs %v, want %v", log.keys, want)
	}
	if want := (store.PutOptions{TTL: time.Hour}); log.last != want {
		t.Errorf("PUT with %+v, want %+v", log.last, want)
	}
}

// Case F05: a Store that takes 10 MB/s. Work goes on at its own pace, and the queue is bounded in bytes.
func TestSlowStoreDelaysNobody(t *testing.T) {
	a, err := arena.New(arena.Config{Name: "test", Bytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	synctest.Test(t, func(t *testing.T) {
		const images, rows, each = 100, 64 << 10, 10 * time.Millisecond // 1 MiB per image, 100 MiB/s
		const bound = 4 << 20
		b := newBenchIn(t, a, func(c *Config) { c.MaxPendingBytes = bound })
		b.store.Set(testkit.Put, testkit.Fault{BytesPerSecond: 10e6})
		start, most := time.Now(), 0.0
		for i := range images {
			time.Sleep(each) // the engine
			b.publish(i, rows, 1)
			most = max(most, testutil.ToFloat64(b.p.Metrics().bytes))
		}
		if took := time.Since(start); took != images*each {
			t.Errorf("%d images took %v, want %v as without a Store", images, took, images*each)
		}
		if most > bound || most < bound/2 {
			t.Errorf("at most %v bytes were pending, bound %d", most, bound)
		}
		b.flush()
		stored := testutil.ToFloat64(b.p.Metrics().outcomes.WithLabelValues(string(Stored)))
		dropped := testutil.ToFloat64(b.p.Metrics().outcomes.WithLabelValues(string(FullBytes)))
		if stored+dropped != images || stored < 10 {
			t.Errorf("%v stored, %v dropped for the budget; want %d together and 10 stored at least", stored, dropped, images)
		}
		b.stop()
	})
}

// Nobody has to come by for finished work to end: memory and budget are back by themselves.
func TestFinishedWorkIsReapedAtOnce(t *testing.T) {
	a, err := arena.New(arena.Config{Name: "test", Bytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	synctest.Test(t, func(t *testing.T) {
		b := newBenchIn(t, a, nil)
		b.publish(1, 3, 1)
		b.publish(2, 3, 1)
		synctest.Wait()
		if n := testutil.ToFloat64(b.p.Metrics().items); n != 0 {
			t.Errorf("%v publications pending without anybody asking, want none", n)
		}
		if st := a.Stats(); st.Committed != 0 {
			t.Errorf("%d bytes still held", st.Committed)
		}
		b.stop()
	})
}

// Drops are counted one by one and logged once per reason and period.
func TestDropsAreLoggedNowAndThen(t *testing.T) {
	a, err := arena.New(arena.Config{Name: "test", Bytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		b := newBenchIn(t, a, func(c *Config) {
			c.MaxPendingItems, c.Timeout, c.LogEvery = 1, time.Hour, time.Minute
			c.Logger = slog.New(slog.NewTextHandler(&text, nil))
		})
		release := b.hold()
		for i := range 50 {
			b.publish(i, 3, 1)
			time.Sleep(2 * time.Second) // 100 s
		}
		b.counted(FullItems, 49)
		if n := strings.Count(text.String(), "full_items"); n != 2 {
			t.Errorf("%d lines of full_items in 100 s, want 2:\n%s", n, text.String())
		}
		if !strings.Contains(text.String(), "dropped=30") {
			t.Errorf("no line stands for the 30 drops of a minute:\n%s", text.String())
		}
		release()
		b.stop()
	})
}

// A Store that never answers holds nobody at shutdown beyond the deadline.
func TestCloseWithAStalledStore(t *testing.T) {
	a, err := arena.New(arena.Config{Name: "test", Bytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	synctest.Test(t, func(t *testing.T) {
		b := newBenchIn(t, a, nil)
		b.store.Set(testkit.Put, testkit.Fault{Hold: make(chan struct{})})
		for i := range 3 {
			b.publish(i, 3, 1)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := b.p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("Close took %v, want 3s", took)
		}
		b.counted(Shutdown, 3)
		b.stop()
	})
}

func TestAdmissionName(t *testing.T) {
	if _, err := New(Config{Protocol: embedding.A1, Admission: "sometimes"}); err == nil {
		t.Error("an unknown admission was accepted")
	} else if want := fmt.Sprint(SecondSighting); !strings.Contains(err.Error(), want) {
		t.Errorf("error %q does not name %s", err, want)
	}
}
