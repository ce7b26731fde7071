// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestLargeObjectsAreAskedFor: one that nobody wants any more does not travel; the same one that is wanted does.
func TestLargeObjectsAreAskedFor(t *testing.T) {
	w := newWorld(t, 1, func(c *ReceiverConfig) { c.Arena = newArena(t, 5<<20) })
	defer w.close()
	w.from = newArena(t, 5<<20)
	s := w.sender()
	defer s.Close()
	large := wantRows("a", askFrom/(2*testCols))
	buf := w.buf(objectOf(t, large))
	defer buf.Release()

	unwanted := w.grant(large)[0]
	unwanted.Cancel()
	if err := s.Send(t.Context(), unwanted.Grant(), buf); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v", err, ErrGone)
	}
	if n := testutil.ToFloat64(w.n.wire); n > 4096 {
		t.Errorf("%v bytes came for an object that nobody wants", n)
	}
	wanted := w.grant(large)[0]
	if err := s.Send(t.Context(), wanted.Grant(), buf); err != nil {
		t.Error(err)
	}
	w.wantObject(wanted, buf.Bytes())
}

// TestCancelEmptiesTheQueue: an object that has not begun to leave when its receiver cancels it does not travel.
func TestCancelEmptiesTheQueue(t *testing.T) {
	w := newWorld(t, 1)
	defer w.close()
	s := w.sender()
	defer s.Close()
	l, err := s.(*sender).connect(t.Context(), w.address)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.busy = true // as while a large object leaves
	l.mu.Unlock()
	f, buf := flight{transferID{1}, 1}, w.buf(object(t, "a"))
	c, err := l.begin(f, buf.Len())
	if err == nil {
		err = l.send(f, buf)
	}
	if err != nil {
		t.Fatal(err)
	}
	buf.Release()
	l.mu.Lock()
	l.cancelledLocked(f, "late")
	queued := len(l.queue)
	l.busy = false
	l.mu.Unlock()
	if a := <-c.answer; queued != 0 || committed(w.from) != 0 || a.status != statusCancelled {
		t.Errorf("%d frames queued, %d bytes held, told %v", queued, committed(w.from), a.status)
	}
}
