// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/testkit/faultconn"
)

// TestRandomFaults: whatever happens to a connection, an object arrives whole or not at all, every
// call ends in time with a class, a confirmed object is there, and all memory comes back.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(300) {
		plan := faultconn.Random(seed, int64(3*objectBytes(testRows)))
		if seed%3 == 2 { // the answers suffer instead of the data
			plan = faultconn.Random(seed, 300)
			plan.Read, plan.Write = plan.Write, faultconn.Faults{}
			plan.Read.ShortAfter = 0 // means nothing to Read
		}
		synctest.Test(t, func(t *testing.T) {
			surviveFault(t, plan)
			if t.Failed() {
				t.Log(plan)
			}
		})
	}
}

// surviveFault sends three objects at once over a connection with plan, and then one more.
func surviveFault(t *testing.T, plan faultconn.Plan) {
	w := newWorld(t, 4)
	defer w.close()
	s := w.sender(func(c *SenderConfig) {
		c.Dial = faultconn.Dialer(w.pipe.Dial, func(n int) faultconn.Plan {
			if n > 0 {
				return faultconn.Plan{}
			}
			return plan
		})
	})
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	tks := w.grant(want(name(0)), want(name(1)), want(name(2)))
	var wg sync.WaitGroup
	start := time.Now()
	for i := range tks {
		wg.Go(func() {
			buf := w.buf(object(t, name(i)))
			defer buf.Release()
			err := s.Send(ctx, tks[i].Grant(), buf)
			if !classed(err) {
				t.Errorf("send %d: %v has no class", i, err)
			}
			if err == nil {
				w.wantObject(tks[i], object(t, name(i)))
			}
		})
	}
	wg.Wait()
	if d := time.Since(start); d > 25*time.Second {
		t.Errorf("sends took %v", d)
	}
	for i, tk := range tks {
		w.wantObjectOrNone(ctx, tk, object(t, name(i)))
		tk.Cancel()
	}
	tk := w.grant(want("last"))[0]
	buf := w.buf(object(t, "last"))
	defer buf.Release()
	for n := 0; ; n++ { // the first connection may be mute without anybody knowing yet
		if err := s.Send(t.Context(), tk.Grant(), buf); err == nil {
			break
		} else if n == 2 || errors.Is(err, ErrRejected) {
			t.Errorf("after the fault: %v", err)
			return
		} else if errors.Is(err, ErrGone) {
			tk = w.grant(want("last"))[0]
		}
	}
	w.wantObject(tk, object(t, "last"))
}

// classed says whether err is nil, of one class, or of the caller's ctx.
func classed(err error) bool {
	n := 0
	for _, class := range []error{ErrRefused, ErrGone, ErrRejected, ErrPeer, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, class) {
			n++
		}
	}
	return n == 1 || err == nil
}

// wantObjectOrNone checks that tk yields obj or an error, and nothing else.
func (w *world) wantObjectOrNone(ctx context.Context, tk Ticket, obj []byte) {
	w.t.Helper()
	buf, _, err := tk.Wait(ctx)
	if err != nil {
		return
	}
	defer buf.Release()
	if string(buf.Bytes()) != string(obj) {
		w.t.Error("a wrong object arrived")
	}
}

// TestT09LateAnswer: a Send that was cancelled leaves an answer behind; the next Send on the same
// connection must not take it for its own.
func TestT09LateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		defer w.close()
		s := w.sender(func(c *SenderConfig) {
			c.Dial = func(ctx context.Context, n, a string) (net.Conn, error) {
				nc, err := w.pipe.Dial(ctx, n, a)
				return faultconn.Wrap(nc, faultconn.Plan{Read: faultconn.Faults{Delay: 100 * time.Millisecond}}), err
			}
		})
		defer s.Close()
		tks := w.grant(want("a"), want("b"))
		a, b := w.buf(object(t, "a")), w.buf(object(t, "a")) // the second is wrong and must be told so
		defer a.Release()
		defer b.Release()
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond) // hello takes 200 ms
		defer cancel()
		if err := s.Send(ctx, tks[0].Grant(), a); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("first send: %v", err)
		}
		if err := s.Send(t.Context(), tks[1].Grant(), b); !errors.Is(err, ErrRejected) {
			t.Errorf("second send got %v, which is not its own answer", err)
		}
		w.wantObject(tks[0], object(t, "a"))
	})
}

// TestLetGoStands: a writer whose room was given up between two of its reads gets no new deadline that would
// undo the interrupt, however well it makes progress.
func TestLetGoStands(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	s := &session{r: &receiver{}, nc: here}
	for state, want := range map[roomState]error{roomWriting: nil, roomDropped: errLetGo, roomGone: errLetGo} {
		s.filling = &room{state: state}
		if err := s.extend(time.Now().Add(time.Hour)); !errors.Is(err, want) {
			t.Errorf("room is %v: %v, want %v", state, err, want)
		}
	}
}

// TestNobodyWritesAfterACut: once a frame was cut short, what followed would be taken for the rest of it.
func TestNobodyWritesAfterACut(t *testing.T) {
	w := newWorld(t, 1)
	defer w.close()
	s := w.sender().(*sender)
	defer s.Close()
	near, far := net.Pipe()
	l := newLink(s, "nowhere", near, 1, false)
	l.post(header{Type: framePing})
	l.mu.Lock()
	batch := l.takeLocked(nil)
	l.mu.Unlock()
	l.post(header{Type: framePing}) // is to follow
	<-l.wake
	s.mu.Lock() // holds up what breaks the link
	go l.write(batch, nil)
	if _, err := io.ReadFull(far, make([]byte, headerBytes/2)); err != nil {
		t.Error(err)
	}
	far.Close()
	<-l.wake // the writer is done
	l.mu.Lock()
	if l.err != nil || len(l.queue) != 1 {
		t.Errorf("error %v, %d frames queued; want a link that is about to break", l.err, len(l.queue))
	}
	if !l.busy {
		t.Error("another may write on")
	}
	l.mu.Unlock()
	s.mu.Unlock()
	<-l.done
}
