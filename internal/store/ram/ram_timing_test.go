// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

var (
	benchSizes  = []int{16 << 10, 1 << 20, 30 << 20}
	benchCounts = []int{1, 4}
)

// benchStore is a Store with all memory faulted in, and a client.
func benchStore(b *testing.B, n int, cfg ClientConfig) (*Server, *Client, *arena.Arena) {
	b.Helper()
	size := int64(max(64<<20, 10*n))
	path, a := socket(b), newArena(b, int64(max(64<<20, 5*n)))
	srv, _ := serve(b, path, Config{MaxBytes: size, MaxObjectBytes: size / 2})
	cfg.Path, cfg.Arena = path, a
	c := dial(b, cfg)
	for i := range 9 { // once through all memory, so that no page is fresh
		mustPut(b, c, a, embedding.Key(fmt.Sprint("warm", i)), n, 1)
		if err := c.Remove(b.Context(), []embedding.Key{embedding.Key(fmt.Sprint("warm", i))}); err != nil {
			b.Fatal(err)
		}
	}
	return srv, c, a
}

// each runs f per size and count of objects.
func eachCase(b *testing.B, f func(b *testing.B, n, count int)) {
	for _, n := range benchSizes {
		for _, count := range benchCounts {
			b.Run(fmt.Sprintf("%dx%dKiB", count, n>>10), func(b *testing.B) { f(b, n, count) })
		}
	}
}

// timed runs f once per round and reports the median besides the mean.
func timed(b *testing.B, f func()) {
	b.ReportAllocs()
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		f()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
}

func benchHit(b *testing.B, n, count int, cfg ClientConfig) {
	_, c, a := benchStore(b, n, cfg)
	keys, wants := make([]embedding.Key, count), make([]store.Want, count)
	for i := range keys {
		keys[i] = embedding.Key(fmt.Sprint(i))
		wants[i] = store.Want{Key: keys[i], Bytes: n, Exact: true}
		mustPut(b, c, a, keys[i], n, 1)
	}
	b.SetBytes(int64(n * count))
	timed(b, func() {
		if _, err := c.Exists(b.Context(), keys); err != nil {
			b.Fatal(err)
		}
		for _, g := range c.Get(b.Context(), wants) {
			if g.Err != nil {
				b.Fatal(g.Err)
			}
			g.Buf.Release()
		}
	})
}

// BenchmarkHit is exists and get of all objects, by loan.
func BenchmarkHit(b *testing.B) {
	eachCase(b, func(b *testing.B, n, count int) { benchHit(b, n, count, ClientConfig{}) })
}

// BenchmarkHitByCopy is the same with a copy into the client's arena.
func BenchmarkHitByCopy(b *testing.B) {
	eachCase(b, func(b *testing.B, n, count int) { benchHit(b, n, count, ClientConfig{Copy: true}) })
}

// BenchmarkHitByStream is the same through the socket.
func BenchmarkHitByStream(b *testing.B) {
	eachCase(b, func(b *testing.B, n, count int) { benchHit(b, n, count, ClientConfig{Stream: true}) })
}

// sealed returns an a1 object of about n bytes in a.
func sealed(b testing.TB, a *arena.Arena, key embedding.Key, n int) *arena.Buf {
	b.Helper()
	m := embedding.Meta{Rows: n / 4096, Cols: 1024, DType: embedding.Float32}
	m.Layout.Parts = []embedding.Part{{Rows: m.Rows}}
	buf, err := a.Reserve(embedding.A1.ObjectBytes(m.Layout, m.Cols, m.DType))
	if err != nil {
		b.Fatal(err)
	}
	clear(buf.Bytes())
	if err := embedding.A1.Seal(buf.Bytes(), key, m); err != nil {
		b.Fatal(err)
	}
	buf.Commit()
	return buf
}

// BenchmarkPut stores an a1 object and prints, from the same run, what the copy and the sum alone cost.
func BenchmarkPut(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			srv, c, a := benchStore(b, n, ClientConfig{})
			buf := sealed(b, a, "k", n)
			defer buf.Release()
			into, err := srv.cfg.Arena.Reserve(buf.Len())
			if err != nil {
				b.Fatal(err)
			}
			defer into.Release()
			b.SetBytes(int64(n))
			var puts, bare []time.Duration
			for b.Loop() {
				start := time.Now()
				copy(into.Bytes(), buf.Bytes())
				_ = xxh3.Hash(into.Bytes())
				mid := time.Now()
				if err := c.Put(b.Context(), "k", buf, store.PutOptions{}); err != nil {
					b.Fatal(err)
				}
				puts, bare = append(puts, time.Since(mid)), append(bare, mid.Sub(start))
				if err := c.Remove(b.Context(), []embedding.Key{"k"}); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(puts)
			slices.Sort(bare)
			put, raw := puts[len(puts)/2], bare[len(bare)/2]
			b.ReportMetric(float64(put.Nanoseconds())/1e3, "put-p50-µs")
			b.ReportMetric(float64(raw.Nanoseconds())/1e3, "memcpy+sum-p50-µs")
			b.ReportMetric(float64(put)/(float64(40*time.Microsecond)+1.15*float64(raw)), "of-target")
		})
	}
}

// BenchmarkMiss asks for four keys that are not there: without asking, and by asking.
// BenchmarkTakeIn copies and sums objects, in the way that takeIn does it and one after the other.
func BenchmarkTakeIn(b *testing.B) {
	after := func(obj, src []byte) error {
		copy(obj, src)
		return verify(obj)
	}
	eachCase(b, func(b *testing.B, n, count int) {
		from, to := newArena(b, int64(4*n+1<<20)), newArena(b, int64(4*n+1<<20))
		var srcs, objs []*arena.Buf
		for range count {
			src := sealed(b, from, "k", n)
			obj, err := to.Reserve(src.Len())
			if err != nil {
				b.Fatal(err)
			}
			srcs, objs = append(srcs, src), append(objs, obj)
			defer src.Release()
			defer obj.Abort()
		}
		for name, take := range map[string]func(obj, src []byte) error{"as one": takeIn, "one after the other": after} {
			b.Run(name, func(b *testing.B) {
				timed(b, func() {
					for i := range count {
						if err := take(objs[i].Bytes(), srcs[i].Bytes()); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	})
}

func BenchmarkMiss(b *testing.B) {
	keys := []embedding.Key{"a", "b", "c", "d"}
	for name, cfg := range map[string]ClientConfig{"sketch": {}, "exists": {Stream: true}} {
		b.Run(name, func(b *testing.B) {
			_, c, _ := benchStore(b, 16<<10, cfg)
			timed(b, func() {
				if _, err := c.Exists(b.Context(), keys); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
