// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// Against a real server on this host, objects in its own segment.
func BenchmarkStore(b *testing.B) {
	m := testkit.StartMooncake(b, testkit.MooncakeConfig{SegmentBytes: 1 << 30})
	a := newArena(b, 512<<20)
	c := open(b, Config{Addr: m.Addr()}, a)
	absent := make([]embedding.Key, 4)
	for i := range absent {
		absent[i] = key(1000 + i)
	}
	b.Run("exists/4 misses", func(b *testing.B) {
		for b.Loop() {
			if _, err := c.Exists(b.Context(), absent); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, size := range []int{16 << 10, 1 << 20, 30 << 20} {
		wants := make([]store.Want, 4)
		keys := make([]embedding.Key, 4)
		for i := range wants {
			keys[i] = embedding.Key(fmt.Sprintf("speed@id:%d-%d", size, i))
			wants[i] = store.Want{Key: keys[i], Bytes: size, Exact: true}
			mustPut(b, c, a, keys[i], size, byte(i))
		}
		for _, n := range []int{1, 4} {
			b.Run(fmt.Sprintf("exists and get/%dx%dKiB", n, size>>10), func(b *testing.B) {
				b.SetBytes(int64(n * size))
				for b.Loop() {
					if _, err := c.Exists(b.Context(), keys[:n]); err != nil {
						b.Fatal(err)
					}
					for _, g := range c.Get(b.Context(), wants[:n]) {
						if g.Err != nil {
							b.Fatal(g.Err)
						}
						g.Buf.Release()
					}
				}
			})
		}
		b.Run(fmt.Sprintf("put/1x%dKiB", size>>10), func(b *testing.B) {
			buf, err := a.Reserve(size)
			if err != nil {
				b.Fatal(err)
			}
			defer buf.Release()
			buf.Commit()
			b.SetBytes(int64(size))
			i := 0
			for b.Loop() {
				i++
				if err := c.Put(b.Context(), embedding.Key(fmt.Sprintf("speed@put:%d-%d", size, i)), buf, store.PutOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
