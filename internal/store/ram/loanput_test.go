// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// A PUT that its caller gave up is never stored with what the caller wrote into its memory later.
func TestCancelledPutStoresNothingElse(t *testing.T) {
	l := newLending(t, 32*mib)
	c, a := l.client(8 * mib)
	const n = 512 << 10
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			buf, err := a.Reserve(n)
			if err != nil {
				t.Error(err)
				return
			}
			defer buf.Abort()
			for i := range 60 {
				v := byte(1 + i)
				fillWith(buf.Bytes(), v)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(400))*time.Microsecond)
				k := embedding.Key([]byte{'k', byte(w), v})
				_ = c.Put(ctx, k, buf, store.PutOptions{})
				cancel()
				clear(buf.Bytes()) // its memory is its own again
				g := c.Get(t.Context(), []store.Want{{Key: k, Bytes: n}})[0]
				if g.Err == nil {
					if !all(g.Buf, v) {
						t.Errorf("object %d of writer %d holds what was written after its PUT", v, w)
					}
					g.Buf.Release()
				}
			}
		})
	}
	wg.Wait()
	l.settled()
}

// A PUT whose caller gives up while the Store waits for room is dropped when there is some, though the caller's
// memory is there to be copied, with what was written into it since.
func TestPutGivenUpInLineStoresNothing(t *testing.T) {
	l := newLending(t, 8*mib)
	reader, from := l.client(8 * mib)
	writer, a := l.client(8 * mib)
	for i := range 100 {
		before := l.srv.Stats()
		held := embedding.Key(fmt.Sprint("held", i))
		mustPut(t, reader, from, held, 4*mib, 1)
		loan := borrow(t, reader, held)
		recalled := make(chan struct{})
		loan.OnRecall(func() { close(recalled) })
		buf := filled(t, a, 6*mib, 2)
		ctx, cancel := context.WithCancel(t.Context())
		put := make(chan error)
		go func() { put <- writer.Put(ctx, "k", buf, store.PutOptions{}) }()
		<-recalled // so the PUT is in line
		cancel()
		if err := <-put; !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrRejected) {
			t.Errorf("the PUT that was given up: %v", err)
		}
		clear(buf.Bytes())
		buf.Release()
		loan.Release()
		var st Stats
		eventually(t, "the end of the PUT", func() bool {
			st = l.srv.Stats()
			return st.UploadBytes == 0 && st.Aborted+st.Rejected+st.Puts-before.Puts-1 > before.Aborted+before.Rejected
		})
		if n, v, err := get(t, reader, "k"); !errors.Is(err, store.ErrMiss) {
			t.Fatalf("round %d: %d bytes of %d, %v; want a miss", i, n, v, err)
		}
		if st.Aborted > before.Aborted {
			return
		}
		// On a busy machine the loan, or the cancel, may come too late for it.
	}
	t.Error("the Store refused every PUT before it had room")
}

// The Store checks its own copy: what a writer does to its memory during the PUT is never stored as a
// sound object.
func TestWriterChangesItsMemory(t *testing.T) {
	l := newLending(t, 32*mib)
	c, a := l.client(8 * mib)
	m := embedding.Meta{Rows: 256, Cols: 1024, DType: embedding.Float32}
	m.Layout.Parts = []embedding.Part{{Rows: m.Rows}}
	src, err := a.Reserve(embedding.A1.ObjectBytes(m.Layout, m.Cols, m.DType))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Abort()
	// The writer of this test changes memory while the Store reads it: a race that is meant. Through a
	// mapping the race detector does not see it.
	clear(src.Bytes())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tail := src.Bytes()[src.Len()-8:]
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				binary.LittleEndian.PutUint64(tail, i&1)
			}
		}
	})
	for i := range 60 {
		k := embedding.Key([]byte{'k', byte(i)})
		if err := embedding.A1.Seal(src.Bytes(), k, m); err != nil {
			t.Fatal(err)
		}
		switch err := c.Put(t.Context(), k, src, store.PutOptions{}); {
		case errors.Is(err, store.ErrRejected):
			continue
		case err != nil:
			t.Fatal(err)
		}
		g := c.Get(t.Context(), []store.Want{{Key: k, Bytes: src.Len()}})[0]
		if g.Err != nil {
			t.Fatal(g.Err)
		}
		if _, _, err := embedding.A1.Open(g.Buf.Bytes(), k, embedding.Contract{Rows: 256, Cols: 1024, DType: embedding.Float32}); err != nil {
			t.Errorf("object %d is stored and unsound: %v", i, err)
		}
		g.Buf.Release()
		c.Remove(t.Context(), []embedding.Key{k})
	}
	close(stop)
	wg.Wait()
	l.settled()
}

// The Store sums its copy of an a1 object, however it came.
func TestUnsoundObjectIsRefused(t *testing.T) {
	l := newLending(t, 16*mib)
	c, a := l.client(4 * mib)
	f := func(name string, from *arena.Arena, size, fromEnd int) {
		t.Helper()
		b := sealed(t, from, "k", size)
		defer b.Release()
		b.Bytes()[b.Len()-fromEnd] ^= 1
		if err := c.Put(t.Context(), "k", b, store.PutOptions{}); !errors.Is(err, store.ErrRejected) || !strings.Contains(err.Error(), "corrupt payload") {
			t.Errorf("%s: %v, want a refusal for the payload", name, err)
		}
		b.Bytes()[b.Len()-fromEnd] ^= 1
		if err := c.Put(t.Context(), "k", b, store.PutOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := borrow(t, c, "k"); !bytes.Equal(got.Bytes(), b.Bytes()) {
			t.Errorf("%s: another object is stored", name)
		} else {
			got.Release()
		}
		c.Remove(t.Context(), []embedding.Key{"k"})
	}
	f("by loan", a, 64<<10, 1)
	f("by stream", newArena(t, mib), 64<<10, 1)
	f("in steps, last byte", a, 700<<10, 1)
	f("in steps, second step", a, 700<<10, 300<<10)
	f("in steps, first step", a, 700<<10, 690<<10)
	f("at once", a, fuseLimit+4096, 1)
	l.settled()
}

// C03: a Store whose memory requests are using refuses at once, serves on, and takes PUTs again after.
func TestPutBesideLoansInUse(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(16 * mib)
	var loans []*arena.Buf
	for i := range 4 {
		k := embedding.Key(rune('a' + i))
		mustPut(t, c, a, k, mib, byte(i))
		loans = append(loans, borrow(t, c, k))
	}
	large := filled(t, a, 5*mib, 9)
	defer large.Release()
	var took time.Duration
	for range len(loans) + 1 { // each waits for loans that were not recalled yet, if there are any
		start := time.Now()
		if err := c.Put(t.Context(), "large", large, store.PutOptions{}); !errors.Is(err, store.ErrRejected) {
			t.Fatalf("Put beside loans in use: %v, want ErrRejected", err)
		}
		if took = time.Since(start); took > recallWait+10*time.Second {
			t.Errorf("a refusal took %v", took)
		}
	}
	// More recalls than loans: the machine is so slow that the Store asked again.
	if st := l.srv.Stats(); st.Recalls < uint64(len(loans)) || st.Recalls == uint64(len(loans)) && took >= recallWait {
		t.Errorf("the last refusal took %v after %d recalls, want each loan recalled and no more waiting", took, st.Recalls)
	}
	for i, b := range loans {
		if !all(b, byte(i)) {
			t.Errorf("loan %d changed", i)
		}
		b.Release()
	}
	l.settled()
	mustPut(t, c, a, "large", 5*mib, 9)
}
