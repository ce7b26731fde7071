// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"fmt"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

var benchSizes = []int{16 << 10, 1 << 20, 16 << 20}

func BenchmarkGet(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			path, a := socket(b), newArena(b, 64<<20)
			serve(b, path, Config{})
			c := dial(b, ClientConfig{Path: path, Arena: a})
			mustPut(b, c, a, "k", n, 1)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				g := c.Get(b.Context(), []store.Want{{Key: "k", Bytes: n, Exact: true}})[0]
				if g.Err != nil {
					b.Fatal(g.Err)
				}
				g.Buf.Release()
			}
		})
	}
}

func BenchmarkPut(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			path, a := socket(b), newArena(b, 64<<20)
			serve(b, path, Config{})
			c := dial(b, ClientConfig{Path: path, Arena: a})
			buf := filled(b, a, n, 1)
			defer buf.Release()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := c.Put(b.Context(), embedding.Key(fmt.Sprint(i)), buf, store.PutOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkExists(b *testing.B) {
	path := socket(b)
	serve(b, path, Config{})
	c := dial(b, ClientConfig{Path: path})
	keys := []embedding.Key{"a", "b", "c", "d"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Exists(b.Context(), keys); err != nil {
			b.Fatal(err)
		}
	}
}
