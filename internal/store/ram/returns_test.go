// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bufio"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
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
				l := &link{nc: ours, memory: m, wake: make(chan struct{}, 1), loans: map[uint64]*arena.Buf{}}
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

// Returns that came in front of a call which was not answered go again.
func TestUnansweredReturnsGoAgain(t *testing.T) {
	m := lentMemory(t, 1<<20)
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		l := &link{nc: ours, memory: m, wake: make(chan struct{}, 1), loans: map[uint64]*arena.Buf{}}
		l.giveBack(7, 64)
		l.giveBack(8, 64)
		carried := l.carry(nil)
		if len(carried) != 2 || len(l.carry(nil)) != 0 {
			t.Fatalf("carried %d returns, want both once", len(carried))
		}
		time.Sleep(10 * linger) // nothing is left that could linger
		start := time.Now()
		l.uncarry(carried)
		done := make(chan struct{})
		go func() { defer close(done); l.write() }()
		in := frames{r: bufio.NewReader(theirs)}
		h, _, err := in.next()
		if took := time.Since(start); err != nil || h.op != opReturn || h.count != 2 || took != linger {
			t.Errorf("op %d with %d loans after %v, %v; want op %d with 2 after %v", h.op, h.count, took, err, opReturn, linger)
		}
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		poke(l.wake)
		<-done
		ours.Close()
	})
}

// A lane may say returns before a request, and gets the answer to the request alone.
func TestReturnsBeforeRequest(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "k", mib, 1)
	_, id := rawLink(t, l.path, a)
	lane := rawLane(t, l.path, id, 1)
	loan := rawLend(lane, 1, "k", mib)
	lane.send(head{op: opReturn, count: 1}, numbers(loan)...)
	lane.send(head{op: opExists, count: 1, request: 2}, appendKeys(nil, []embedding.Key{"k"})...)
	if h, _ := lane.recv(); h.op != opExists || h.request != 2 {
		t.Errorf("reply of op %d to request %d, want op %d to 2", h.op, h.request, opExists)
	}
	if got := l.srv.Stats().Loans; got != 0 {
		t.Errorf("%d loans, want none", got)
	}
}

// A lane that breaks under a call keeps no loan from going back.
func TestBrokenLaneGivesReturnsBack(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "k", mib, 1)
	borrow(t, c, "k").Release()
	cn := c.reads.take()
	cn.carried = cn.link.carry(nil)
	c.drop(cn, cn.request)
	l.settled()
}
