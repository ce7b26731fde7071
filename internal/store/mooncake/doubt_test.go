// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// The key of a transfer that failed is hidden, whatever the master says of it: a dead storage node still has it.
func TestDistrust(t *testing.T) {
	f, c, read := startWithFake(t)
	f.mu.Lock()
	f.exist = func(keys []string) []int64 { return slices.Repeat([]int64{1}, len(keys)) }
	f.mu.Unlock()
	f.set(func(uint32, []string, [][]byte) []int64 { return []int64{int64(codeTransferFailed)} })
	if g := read("k", 100); !errors.Is(g.Err, store.ErrUnconfirmed) {
		t.Fatalf("first reading: %v, want ErrUnconfirmed", g.Err)
	}
	f.set(func(uint32, []string, [][]byte) []int64 { return []int64{1} })
	calls := f.count(fnGet) + f.count(fnPut)
	if g := read("k", 100); !errors.Is(g.Err, store.ErrMiss) {
		t.Errorf("second reading: %v, want ErrMiss", g.Err)
	}
	if err := put(t, c, c.arena, "k", 100, 1); !errors.Is(err, store.ErrRejected) {
		t.Errorf("Put: %v, want ErrRejected", err)
	}
	if n := f.count(fnGet) + f.count(fnPut) - calls; n != 0 {
		t.Errorf("%d calls for a key that is not trusted", n)
	}
	states, err := c.Exists(t.Context(), []embedding.Key{"k", "other"})
	if err != nil || states[0].Present || !states[1].Present {
		t.Errorf("Exists: %+v, %v, want the other key alone", states, err)
	}
	if g := read("other", 100); g.Err != nil {
		t.Errorf("another key: %v", g.Err)
	}
}

// However many keys are in doubt, those that came last are.
func TestDistrustIsBounded(t *testing.T) {
	var d distrust
	for i := range maxDistrusted + 10 {
		d.add(fmt.Sprint(i), time.Hour)
		if !d.has(fmt.Sprint(i)) {
			t.Fatalf("key %d is trusted at once", i)
		}
	}
	if n := d.size(); n > maxDistrusted {
		t.Errorf("%d keys are remembered, want %d at most", n, maxDistrusted)
	}
}

// A call whose connection breaks may go on at the server: its memory is held until the server has let go of it,
// and its key not trusted.
func TestCutCall(t *testing.T) {
	f, c, read := startWithFake(t)
	began, end := make(chan struct{}), make(chan struct{})
	f.set(func(uint32, []string, [][]byte) []int64 {
		close(began)
		<-end
		return []int64{1}
	})
	go func() {
		<-began
		f.drop()
	}()
	if g := read("k", 100); !errors.Is(g.Err, store.ErrUnconfirmed) {
		t.Errorf("got %v, want ErrUnconfirmed", g.Err)
	}
	if st := c.Stats(); st.Quarantined != 1 {
		t.Errorf("%d ranges went into quarantine, want 1", st.Quarantined)
	}
	if !c.wary.has("k") {
		t.Error("the key is trusted")
	}
	close(end)
	idle(t, c.arena)
}

// The late answer to a call that was left says whether its memory and its key are in doubt.
func TestLateFailure(t *testing.T) {
	f, c, _ := startWithFake(t)
	f.mu.Lock()
	f.stubborn = true
	f.mu.Unlock()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	f.set(func(uint32, []string, [][]byte) []int64 {
		leave()
		<-left
		return []int64{int64(codeTransferFailed)}
	})
	g := c.Get(ctx, []store.Want{{Key: "k", Bytes: 100}})[0]
	if !errors.Is(g.Err, store.ErrUnconfirmed) || c.wary.has("k") {
		t.Errorf("a call that was left: %v, distrusted: %v", g.Err, c.wary.has("k"))
	}
	close(left)
	eventually(t, "the key is not trusted", func() bool { return c.wary.has("k") })
	if n := c.Stats().QuarantineRanges; n != 1 {
		t.Errorf("%d ranges in quarantine, want the one of the call", n)
	}
	f.mu.Lock()
	f.stubborn = false
	f.mu.Unlock()
	idle(t, c.arena)
}

// Only the process that has a mapping can say that it is gone. Where it cannot be told from another one, only
// the connection over which the mapping came counts.
func TestWhoseWord(t *testing.T) {
	at := func(l *link, pid, pidfd int) *session { return &session{l: l, proc: &process{pid: pid, pidfd: pidfd}} }
	l := &link{pid: 7}
	for _, tc := range []struct {
		s    *session
		want bool
	}{
		{at(l, 7, 3), true},
		{at(l, 0, -1), true},
		{at(&link{}, 7, 3), true},
		{at(&link{}, 8, 3), false},
		{at(&link{}, 7, -1), false}, // the number may be that of a later process
		{at(&link{}, 0, 3), false},
	} {
		if got := l.serves(tc.s); got != tc.want {
			t.Errorf("session of process %+v, of this connection %v: %v, want %v", *tc.s.proc, tc.s.l == l, got, tc.want)
		}
	}
}
