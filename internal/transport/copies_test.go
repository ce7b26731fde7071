// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/arena"
)

// TestLoanOfACopy: an object in memory that receivers have not mapped, such as a Store's, is copied once, into
// memory that they have; where that is full it goes through the connection.
func TestLoanOfACopy(t *testing.T) {
	w, s := nearWorld(t, 4)
	own := w.from
	w.from = mapped(t, 1<<20) // where deliver makes objects
	got := w.deliver(s, "a")
	if !got.Foreign() || string(got.Bytes()) != string(object(t, "a")) {
		t.Errorf("foreign %v, or other bytes", got.Foreign())
	}
	if n := testutil.ToFloat64(w.n.copied); n != 0 || committed(own) != int64(objectBytes(testRows)) || committed(w.from) != 0 {
		t.Errorf("%v bytes copied through the connection, %d held in the sender's arena and %d in the other", n, committed(own), committed(w.from))
	}
	got.Release()
	eventually(t, "the copy is gone", func() bool { return committed(own) == 0 })
	rest, err := own.Reserve(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if got = w.deliver(s, "b"); got.Foreign() || string(got.Bytes()) != string(object(t, "b")) {
		t.Errorf("foreign %v, or other bytes", got.Foreign())
	}
	got.Release()
	rest.Abort()
	s.Close()
	w.close()
}

// TestFanOutOfACopy: however many receivers an object goes to that has to be copied for them, it is copied once.
func TestFanOutOfACopy(t *testing.T) {
	w, s := nearWorld(t, 4)
	other, spare := nearWorld(t, 4)
	spare.Close()
	own, store := w.from, mapped(t, 1<<20)
	buf := bufIn(t, store, object(t, "a"))
	c := &s.(*sender).copies
	held := c.take(own, buf) // as by a third Send that is under way
	var got []*arena.Buf
	for _, to := range []*world{w, other} {
		tk := to.grant(want("a"))[0]
		if err := s.Send(t.Context(), tk.Grant(), buf); err != nil {
			t.Fatal(err)
		}
		b, _, err := tk.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !b.Foreign() || string(b.Bytes()) != string(object(t, "a")) {
			t.Errorf("foreign %v, or other bytes", b.Foreign())
		}
		got = append(got, b)
	}
	c.drop(buf, held)
	buf.Release()
	if n := committed(own); n != int64(objectBytes(testRows)) || committed(store) != 0 || len(c.byBuf) != 0 {
		t.Errorf("%d bytes of copies, want one of %d; %d of the source are held, %d copies known", n, objectBytes(testRows), committed(store), len(c.byBuf))
	}
	for _, b := range got {
		b.Release()
	}
	eventually(t, "the copy is gone", func() bool { return committed(own) == 0 })
	s.Close()
	w.close()
	other.close()
}
