// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/arena"
)

// mapped returns an arena that can be lent, in race builds too.
func mapped(t testing.TB, n int64) *arena.Arena {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "test", Bytes: n, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// nearWorld starts a receiver that takes loans, over real sockets, and a sender that lends.
func nearWorld(t *testing.T, n int, change ...func(*ReceiverConfig)) (*world, Sender) {
	t.Helper()
	w := newWorld(t, n, append([]func(*ReceiverConfig){func(c *ReceiverConfig) {
		c.Listener, c.Address, c.Local = nil, "127.0.0.1:0", true
	}}, change...)...)
	w.pipe = nil
	w.from = mapped(t, 1<<20)
	return w, w.sender(func(c *SenderConfig) { c.Arena, c.Metrics = w.from, NewMetrics(nil) })
}

// deliver sends the object called name and returns what the ticket yields.
func (w *world) deliver(s Sender, name string) *arena.Buf {
	w.t.Helper()
	tk := w.grant(want(name))[0]
	buf := w.buf(object(w.t, name))
	defer buf.Release()
	if err := s.Send(w.t.Context(), tk.Grant(), buf); err != nil {
		w.t.Fatalf("send %s: %v", name, err)
	}
	got, _, err := tk.Wait(w.t.Context())
	if err != nil {
		w.t.Fatalf("wait for %s: %v", name, err)
	}
	return got
}

// eventually waits until ok says yes.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not true within 10 s: %s", what)
		}
	}
}

// committed returns the bytes of objects in an arena.
func committed(a *arena.Arena) int64 { return a.Stats().Committed }

// On one host an object changes hands by reference: the receiver's Buf is the sender's memory, no
// payload passes the connection, and the sender keeps the range until the receiver lets go.
func TestLoan(t *testing.T) {
	w, s := nearWorld(t, 4)
	got := w.deliver(s, "a")
	if !got.Foreign() || string(got.Bytes()) != string(object(t, "a")) {
		t.Errorf("foreign %v, or other bytes", got.Foreign())
	}
	w.wantInUse(0) // what was granted is back
	if n := testutil.ToFloat64(w.n.wire); n > 2000 || testutil.ToFloat64(w.n.copied) != 0 {
		t.Errorf("%v bytes passed the connection", n)
	}
	if n := testutil.ToFloat64(w.n.lent); n != float64(objectBytes(testRows)) {
		t.Errorf("%v bytes lent, want %d", n, objectBytes(testRows))
	}
	if committed(w.from) == 0 {
		t.Error("the sender's range is free while it is on loan")
	}
	got.Release()
	eventually(t, "the loan is back", func() bool { return committed(w.from) == 0 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	w.close()
	if err := w.from.Close(); err != nil {
		t.Error(err)
	}
}

// A Buf on loan stays valid when its sender is gone, and when the Receiver has closed; its holder is asked to let go,
// since it keeps all of the sender's memory.
func TestLoanOutlivesSender(t *testing.T) {
	w, s := nearWorld(t, 4)
	got := w.deliver(s, "a")
	recalled := make(chan struct{})
	defer got.OnRecall(func() { close(recalled) })()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-recalled:
	case <-time.After(10 * time.Second):
		t.Error("the loan of a sender that is gone was not asked back")
	}
	if err := w.from.Close(); !errors.Is(err, arena.ErrQuarantined) {
		t.Errorf("a sender that closes frees what is on loan: %v", err)
	}
	if err := w.from.Detach(); err != nil { // as at the end of its process
		t.Error(err)
	}
	w.close()
	if string(got.Bytes()) != string(object(t, "a")) {
		t.Error("the object changed")
	}
	got.Release()
}

// When the Receiver closes while a loan is held, the sender hears of its end when it is released, not
// before.
func TestLoanOutlivesReceiver(t *testing.T) {
	w, s := nearWorld(t, 4)
	got := w.deliver(s, "a")
	late := w.grant(want("late"))[0].Grant()
	w.close()
	if err := s.Send(t.Context(), late, got); !errors.Is(err, ErrPeer) {
		t.Errorf("send to a receiver that has closed: %v", err)
	}
	if committed(w.from) == 0 {
		t.Error("the range is free while it is read")
	}
	got.Release()
	eventually(t, "the loan is back", func() bool { return committed(w.from) == 0 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := w.from.Close(); err != nil {
		t.Error(err)
	}
}

// What cannot be lent is copied, and callers see no difference.
func TestLoanFallsBackToCopy(t *testing.T) {
	f := func(name string, change func(*world) Sender) {
		t.Helper()
		w, near := nearWorld(t, 4)
		near.Close()
		s := change(w)
		got := w.deliver(s, "a")
		if got.Foreign() || string(got.Bytes()) != string(object(t, "a")) {
			t.Errorf("%s: foreign %v, or other bytes", name, got.Foreign())
		}
		got.Release()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		w.close()
	}
	f("a sender that lends nothing", func(w *world) Sender { return w.sender() })
	f("another boot", func(w *world) Sender {
		s := w.sender(func(c *SenderConfig) { c.Arena = w.from })
		s.(*sender).me.Boot = "another"
		return s
	})
	f("another network namespace", func(w *world) Sender {
		s := w.sender(func(c *SenderConfig) { c.Arena = w.from })
		s.(*sender).me.Network = "net:[1]"
		return s
	})
	f("another user, says the receiver", func(w *world) Sender {
		w.user++
		return w.sender(func(c *SenderConfig) { c.Arena = w.from })
	})
	f("a socket that is gone", func(w *world) Sender {
		w.me.Socket = "@afterimage-test-nobody"
		return w.sender(func(c *SenderConfig) { c.Arena = w.from })
	})
}

// A sender shows its memory to no process of another user.
func TestMemoryIsForOneUser(t *testing.T) {
	w, s := nearWorld(t, 4)
	s.(*sender).user++
	tk := w.grant(want("a"))[0]
	buf := w.buf(object(t, "a"))
	if err := s.Send(t.Context(), tk.Grant(), buf); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "of user") {
		t.Errorf("got %v", err)
	}
	buf.Release()
	tk.Cancel()
	s.Close()
	w.close()
}

// At most half of an arena is on loan; past a quarter the oldest loans are asked back.
func TestLoanLimitAndRecall(t *testing.T) {
	w, s := nearWorld(t, 64)
	size := int64(objectBytes(testRows)+63) / 64 * 64
	w.from = mapped(t, 8*size)
	s.(*sender).cfg.Arena = w.from
	recalled := make(chan struct{})
	var held []*arena.Buf
	for i := range 5 {
		got := w.deliver(s, name(i))
		if i == 0 {
			defer got.OnRecall(func() { close(recalled) })()
		}
		if want := i < 4; got.Foreign() != want {
			t.Errorf("object %d: foreign %v, want %v", i, got.Foreign(), want)
		}
		held = append(held, got)
	}
	select {
	case <-recalled:
	case <-time.After(10 * time.Second):
		t.Error("the oldest loan was not asked back")
	}
	for _, b := range held {
		b.Release()
	}
	eventually(t, "all loans are back", func() bool { return committed(w.from) == 0 })
	s.Close()
	w.close()
}

// A loan that is more than a quarter by itself is asked back as soon as the next object is sent, which is copied.
func TestLargeLoanIsRecalled(t *testing.T) {
	w, s := nearWorld(t, 4)
	size := int64(objectBytes(testRows)+63) / 64 * 64
	w.from = mapped(t, 2*size+64)
	s.(*sender).cfg.Arena = w.from
	first := w.deliver(s, "a")
	recalled := make(chan struct{})
	defer first.OnRecall(func() { close(recalled) })()
	if second := w.deliver(s, "b"); !first.Foreign() || second.Foreign() {
		t.Errorf("on loan: %v, then %v", first.Foreign(), second.Foreign())
	} else {
		second.Release()
	}
	select {
	case <-recalled:
	case <-time.After(10 * time.Second):
		t.Error("the first loan was not asked back")
	}
	first.Release()
	eventually(t, "the loan is back", func() bool { return committed(w.from) == 0 })
	s.Close()
	w.close()
}

// A sender whose account of its memory is wrong loses its connection, and only the transfer that it
// named.
func TestLoanOfNothing(t *testing.T) {
	w, s := nearWorld(t, 4)
	tks := w.grant(want("bad"), want("good"))
	l, err := s.(*sender).connect(t.Context(), w.address)
	if err != nil {
		t.Fatal(err)
	}
	h := header{Type: frameComplete, Transfer: tks[0].id, Attempt: 1, Generation: w.generation, Length: lendBytes}
	p := parcel{n: headerBytes + lendBytes}
	h.append(p.head[:0])
	p.head[headerBytes+lendOffset+5] = 1 // 1 TiB in
	p.head[headerBytes+lendLength] = byte(objectBytes(testRows))
	p.head[headerBytes+lendLength+1] = byte(objectBytes(testRows) >> 8)
	l.mu.Lock()
	_ = l.submitUnlock(p, true)
	if _, _, err := tks[0].Wait(t.Context()); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "loan of") {
		t.Errorf("got %v", err)
	}
	buf := w.buf(object(t, "good"))
	defer buf.Release()
	eventually(t, "the next send finds a connection", func() bool {
		return s.Send(t.Context(), tks[1].Grant(), buf) == nil
	})
	w.wantObject(tks[1], object(t, "good"))
	s.Close()
	w.close()
}

// A lent object is checked as far as its head goes.
func TestLoanRejected(t *testing.T) {
	w, s := nearWorld(t, 4)
	tk := w.grant(want("a"))[0]
	buf := w.buf(object(t, "b"))
	if err := s.Send(t.Context(), tk.Grant(), buf); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "foreign") {
		t.Errorf("got %v", err)
	}
	buf.Release()
	w.wantInUse(0)
	eventually(t, "the loan is back", func() bool { return committed(w.from) == 0 })
	s.Close()
	w.close()
}

func TestHere(t *testing.T) {
	p := here()
	link, err := os.Readlink("/proc/self/ns/net")
	if err != nil || p.Network != link || len(p.Boot) != 36 {
		t.Errorf("got %+v, want network %q (%v)", p, link, err)
	}
	if !p.near(p) || (place{}).near(place{}) || p.near(place{Boot: p.Boot}) {
		t.Error("near is wrong")
	}
}
