// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"afterimage/internal/embedding"
)

var benchRows = []int{16 << 10, 1 << 20, 16 << 20} // bytes of payload

// BenchmarkTCP delivers one object at a time over loopback, from grant to claim.
func BenchmarkTCP(b *testing.B) {
	for _, size := range benchRows {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			wt := wantRows("bench", size/(testCols*2))
			into, from := newArena(b, int64(wt.Bytes)+64), newArena(b, int64(wt.Bytes)+64)
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
			buf := bufIn(b, from, objectOf(b, wt))
			defer buf.Release()
			b.SetBytes(int64(wt.Bytes))
			b.ReportAllocs()
			for b.Loop() {
				tks, err := r.Grant(b.Context(), []Want{wt})
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Send(b.Context(), tks[0].Grant(), buf); err != nil {
					b.Fatal(err)
				}
				got, _, err := tks[0].Wait(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				got.Release()
			}
		})
	}
}

// BenchmarkBareTCP is the floor: the same bytes through a socket into the same kind of memory, one
// byte back, nothing checked.
func BenchmarkBareTCP(b *testing.B) {
	for _, size := range benchRows {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			n := embedding.A1.ObjectBytes(layout(size/(testCols*2)), testCols, embedding.Float16)
			into, from := bufIn(b, newArena(b, int64(n)), make([]byte, n)), bufIn(b, newArena(b, int64(n)), make([]byte, n))
			defer into.Release()
			defer from.Release()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				defer nc.Close()
				for {
					if _, err := io.ReadFull(nc, into.Bytes()); err != nil {
						return
					}
					if _, err := nc.Write([]byte{1}); err != nil {
						return
					}
				}
			}()
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(n))
			ack := make([]byte, 1)
			for b.Loop() {
				if _, err := nc.Write(from.Bytes()); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(nc, ack); err != nil {
					b.Fatal(err)
				}
			}
			nc.Close()
			<-done
		})
	}
}
