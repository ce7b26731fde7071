// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"afterimage/internal/embedding"
)

var benchSizes = []int{16 << 10, 1 << 20, 30 << 20} // bytes of payload

// benchDepth is how many transfers of a size are under way at once.
func benchDepth(size int) int { return max(2, min(64, (8<<20)/size)) }

// BenchmarkTCP delivers objects over loopback, from grant to claim, as many at once as an Encoder would.
func BenchmarkTCP(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			depth := benchDepth(size)
			rows := size / (testCols * 2)
			room := int64(depth * (objectBytes(rows) + 64))
			into, from := newArena(b, room), newArena(b, room)
			log := slog.New(slog.DiscardHandler)
			r, err := NewReceiver(ReceiverConfig{Arena: into, Address: "127.0.0.1:0", Engine: testEngine, Cols: testCols, Logger: log})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			s, err := NewSender(SenderConfig{Engine: testEngine, Cols: testCols, Logger: log})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.SetBytes(int64(objectBytes(rows)))
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range depth { // an object of its own each: equal ones would share a write
				wt := wantRows(name(i), rows)
				buf := bufIn(b, from, objectOf(b, wt))
				defer buf.Release()
				wg.Go(func() {
					<-start
					for left.Add(-1) >= 0 {
						tks, err := r.Grant(context.Background(), []Want{wt})
						if err == nil {
							err = s.Send(context.Background(), tks[0].Grant(), buf)
						}
						if err != nil {
							b.Error(err)
							return
						}
						got, _, err := tks[0].Wait(context.Background())
						if err != nil {
							b.Error(err)
							return
						}
						got.Release()
					}
				})
			}
			b.ResetTimer()
			close(start)
			wg.Wait()
		})
	}
}

// BenchmarkBareTCP is the floor: the same bytes through a socket into the same kind of memory, and
// nothing said or checked.
func BenchmarkBareTCP(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			n := embedding.A1.ObjectBytes(layout(size/(testCols*2)), testCols, embedding.Float16)
			depth := benchDepth(size)
			into, from := newArena(b, int64(depth*(n+64))), bufIn(b, newArena(b, int64(n)), make([]byte, n))
			defer from.Release()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			far, err := ln.Accept()
			if err != nil {
				b.Fatal(err)
			}
			defer far.Close()
			b.SetBytes(int64(n))
			b.ResetTimer()
			done := make(chan struct{})
			go func() {
				defer close(done)
				room := bufIn(b, into, make([]byte, n*depth))
				defer room.Release()
				for i := range b.N {
					at := i % depth * n
					if _, err := io.ReadFull(far, room.Bytes()[at:at+n]); err != nil {
						b.Error(err)
						return
					}
				}
			}()
			for range b.N {
				if _, err := nc.Write(from.Bytes()); err != nil {
					b.Fatal(err)
				}
			}
			<-done
		})
	}
}
