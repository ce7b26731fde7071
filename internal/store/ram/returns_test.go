// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bufio"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/arena"
)

// lentMemory returns a mapping of n bytes.
func lentMemory(t *testing.T, n int64) *arena.Mapping {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "returns", Bytes: n, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := a.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := arena.MapShared(f, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// Returns travel together within linger, and at once when the Store asks or when they are many bytes.
func TestReturnsTravelTogether(t *testing.T) {
	const memory = 1 << 20
	m := lentMemory(t, memory)
	for _, c := range []struct {
		name  string
		bytes int64 // of each of two returns
		asked bool
		took  time.Duration
	}{
		{"few bytes", 64, false, linger},
		{"asked back", 64, true, 0},
		{"many bytes", memory / lingerShare, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				defer theirs.Close()
				l := &link{nc: ours, memory: m, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), loans: map[uint64]*arena.Buf{}}
				l.giveBack(7, c.bytes)
				l.giveBack(8, c.bytes)
				if c.asked {
					l.recall([]uint64{7})
				}
				start := time.Now()
				done := make(chan struct{})
				go func() { defer close(done); l.write() }()
				in := frames{r: bufio.NewReader(theirs)}
				h, _, err := in.next()
				if took := time.Since(start); err != nil || h.op != opReturn || h.count != 2 || took != c.took {
					t.Errorf("op %d with %d loans after %v, %v; want op %d with 2 after %v", h.op, h.count, took, err, opReturn, c.took)
				}
				l.mu.Lock()
				l.over = true
				l.mu.Unlock()
				poke(l.wake)
				<-done
				ours.Close()
			})
		})
	}
}
