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
