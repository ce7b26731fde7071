// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// G03, T07: a Store that restarts takes nothing from under its readers, who are told to let go, and no
// byte of the old one is read from the new one.
func TestRestartUnderLoans(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(8 * mib)
	for i := range 3 {
		mustPut(t, c, a, embedding.Key(rune('a'+i)), mib, byte(i))
	}
	loan := borrow(t, c, "b")
	told := make(chan struct{})
	loan.OnRecall(func() { close(told) })
	old := c.link.Load()
	l.stop()
	<-told
	if !all(loan, 1) {
		t.Error("the loan changed as its Store closed")
	}
	l.srv, l.stop = serve(t, l.path, Config{MaxBytes: 8 * mib, Mapped: true})
	eventually(t, "the new Store", func() bool {
		g := c.Get(t.Context(), []store.Want{{Key: "b", Bytes: mib}})[0]
		if g.Err == nil {
			t.Fatal("an object outlived its Store")
		}
		return errors.Is(g.Err, store.ErrMiss)
	})
	mustPut(t, c, a, "b", mib, 77)
	fresh := borrow(t, c, "b")
	if !all(fresh, 77) || !all(loan, 1) || c.link.Load() == old {
		t.Error("old and new Store are mixed up")
	}
	fresh.Release()
	loan.Release()
	l.settled()
}

// A Store that stops serving, and goes on living, does not give away what its readers hold.
func TestServeEndsUnderLoans(t *testing.T) {
	path := socket(t)
	srv, err := NewServer(Config{MaxBytes: 4 * mib, Mapped: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	serveFor := func() (cancel func()) {
		ln, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := srv.Serve(ctx, ln); err != nil {
				t.Error(err)
			}
		}()
		return func() { end(); <-done }
	}
	l := &lending{TB: t, path: path, srv: srv}
	stop := serveFor()
	c, a := l.client(2 * mib)
	mustPut(t, c, a, "k", mib, 1)
	loan := borrow(t, c, "k")
	stop()
	eventually(t, "the end of all sessions", func() bool { return srv.Stats().Connections == 0 })
	defer serveFor()()
	d, b := l.client(2 * mib)
	d.Remove(t.Context(), []embedding.Key{"k"})
	for i := range 8 {
		put(t, d, b, embedding.Key(fmt.Sprint(i)), mib, 9)
	}
	if !all(loan, 1) {
		t.Error("the loan changed")
	}
	loan.Release()
	if q := srv.cfg.Arena.Stats().Quarantined; q != mib {
		t.Errorf("%d bytes in quarantine, want the loan's", q)
	}
}

// Bufs stay good beyond Close of their client, whose connection ends with the last of them.
func TestLoansOutliveTheirClient(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "a", mib, 1)
	mustPut(t, c, a, "b", mib, 2)
	x, y := borrow(t, c, "a"), borrow(t, c, "b")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	x.Release()
	other, b := l.client(8 * mib)
	eventually(t, "return of the one loan", func() bool { return l.srv.Stats().Loans == 1 })
	other.Remove(t.Context(), []embedding.Key{"a", "b"})
	mustPut(t, other, b, "c", 6*mib, 3) // all but what is still on loan
	if !all(y, 2) {
		t.Error("a loan changed after its client closed")
	}
	y.Release()
	l.settled()
}
