// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/embedding"
)

// say writes a frame about tk without a body, or with one of text.
func (p *rawPeer) say(typ frameType, tk *ticket, text string) header {
	p.t.Helper()
	h := data(tk)
	h.Type, h.Length = typ, 0
	p.write(appendText(nil, h, text))
	return h
}

// reserve announces the object of tk, which must be welcome.
func (p *rawPeer) reserve(tk *ticket) {
	p.t.Helper()
	p.wantAnswer(frameGrant, p.say(frameReserve, tk, ""), statusGo)
}

// deliver sends the object of tk, called name.
func (p *rawPeer) deliver(tk *ticket, name string) {
	p.t.Helper()
	h := data(tk)
	p.write(append(h.append(nil), object(p.t, name)...))
	p.wantAck(h, statusComplete)
}

// wantMissing checks that tk fails at once, with text in the reason.
func (w *world) wantMissing(tk *ticket, text string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	buf, _, err := tk.Wait(ctx)
	if buf != nil {
		buf.Release()
	}
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), text) {
		w.t.Errorf("got %v, want %q", err, text)
	}
}

// wantWaiting checks that nobody has decided about tk.
func (w *world) wantWaiting(tk *ticket) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if tk.state != waiting {
		w.t.Errorf("the ticket is %v, want waiting", tk.state)
	}
}

// inBubble runs a test with a receiver that has room for n objects, and two hand-made senders.
func inBubble(t *testing.T, n int, f func(w *world, p, q *rawPeer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, n)
		p, q := w.raw(), w.raw()
		f(w, p, q)
		p.nc.Close()
		q.nc.Close()
		w.close()
	})
}

// TestFollowerCompleteIsIdempotentNoop: the object of a follower that comes when another's is there is
// confirmed and changes nothing, any number of times.
func TestFollowerCompleteIsIdempotentNoop(t *testing.T) {
	inBubble(t, 1, func(w *world, p, q *rawPeer) {
		a, b := w.grant(want("x"))[0], w.grant(want("x"))[0] // one room: there is memory for one only
		p.deliver(a, "x")
		for range 2 {
			h := data(b)
			q.write(append(h.append(nil), make([]byte, h.Length)...))
			q.wantAck(h, statusComplete)
		}
		w.wantDropped("duplicate", 2)
		w.wantObject(b, object(t, "x"))
		w.wantObject(a, object(t, "x"))
	})
}

// TestCompleteRejectsUnknownTransfer: nothing is made up for a transfer that was never granted.
func TestCompleteRejectsUnknownTransfer(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		tk := w.grant(want("x"))[0]
		h := data(tk)
		h.Transfer[0] ^= 1
		p.write(append(h.append(nil), object(t, "x")...))
		p.wantAck(h, statusUnknown)
		w.wantWaiting(tk)
	})
}

// TestNotifyCompletionsToleratesRejectedReservation: of several objects under way, one that is rejected
// fails alone, and its error names it.
func TestNotifyCompletionsToleratesRejectedReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		defer w.close()
		s := w.sender()
		defer s.Close()
		tks := w.grant(want("a"), want("b"), want("c"))
		tks[1].Cancel()
		var wg sync.WaitGroup
		for i, n := range []string{"a", "b", "c"} {
			wg.Go(func() {
				buf := w.buf(object(t, n))
				defer buf.Release()
				err := s.Send(t.Context(), tks[i].Grant(), buf)
				if rejected := i == 1; rejected != errors.Is(err, ErrGone) || rejected && !strings.Contains(err.Error(), tks[i].id.String()) {
					t.Errorf("%s: got %v", n, err)
				}
			})
		}
		wg.Wait()
		w.wantObject(tks[0], object(t, "a"))
		w.wantObject(tks[2], object(t, "c"))
	})
}

// A reservation ties a transfer to the life of its sender: it fails at once when the connection ends,
// and within WriterTimeout when nothing comes any more. Pings are a sign of life.
func TestT06DeadSender(t *testing.T) {
	f := func(name string, die func(*rawPeer), within time.Duration, text string) {
		t.Helper()
		inBubble(t, 2, func(w *world, p, q *rawPeer) {
			tk, other := w.grant(want("a"))[0], w.grant(want("b"))[0]
			p.reserve(tk)
			for range 20 {
				time.Sleep(time.Second)
				p.wantAlive()
			}
			synctest.Wait() // the receiver reads: it hears of the death by an end of the stream
			start := time.Now()
			die(p)
			if _, _, err := tk.Wait(context.Background()); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: got %v, want %q", name, err, text)
			}
			if d := time.Since(start); d > within {
				t.Errorf("%s: took %v, want at most %v", name, d, within)
			}
			w.wantInUse(int64(objectBytes(testRows))) // the other's
			q.deliver(other, "b")
			w.wantObject(other, object(t, "b"))
		})
	}
	f("death", func(p *rawPeer) { p.nc.Close() }, 0, "its sender is gone")
	f("silence", func(*rawPeer) {}, 2*time.Second, "no sign of life for 2s")
}

// A follower does not need its own sender any more while another's writes.
func TestFollowerOutlivesItsSender(t *testing.T) {
	inBubble(t, 1, func(w *world, p, q *rawPeer) {
		writer, follower := w.grant(want("x"))[0], w.grant(want("x"))[0]
		bytes := append(data(writer).append(nil), object(t, "x")...)
		p.write(bytes[:headerBytes+100])
		synctest.Wait()
		q.wantAnswer(frameGrant, q.say(frameReserve, follower, ""), statusFollow)
		q.nc.Close()
		synctest.Wait()
		p.write(bytes[headerBytes+100:])
		p.wantAck(data(writer), statusComplete)
		w.wantObject(writer, object(t, "x"))
		w.wantObject(follower, object(t, "x"))
	})
}

// A sender that was told to follow hears when the object is there, or will not be.
func TestFollowerHears(t *testing.T) {
	f := func(name string, st status) {
		inBubble(t, 1, func(w *world, p, q *rawPeer) {
			writer, follower := w.grant(want("x"))[0], w.grant(want("x"))[0]
			bytes := append(data(writer).append(nil), object(t, name)...)
			p.write(bytes[:headerBytes+100])
			synctest.Wait()
			h := data(follower)
			q.write(append(h.append(nil), make([]byte, h.Length)...)) // is drained
			p.write(bytes[headerBytes+100:])
			p.read()
			q.wantAck(h, st)
			w.wantDropped("follow", 1)
			writer.Cancel()
			follower.Cancel()
		})
	}
	f("x", statusComplete)
	f("another", statusFailed)
}

// A want that is to be fresh shares nothing that was there before it; what comes later may share it.
func TestFreshWant(t *testing.T) {
	inBubble(t, 2, func(w *world, p, _ *rawPeer) {
		old := w.grant(want("x"))[0]
		p.deliver(old, "x")
		fresh := want("x")
		fresh.Fresh = true
		tk := w.grant(fresh)[0]
		w.wantWaiting(tk)
		later := w.grant(want("x"))[0]
		p.deliver(tk, "x")
		w.wantInUse(2 * int64(objectBytes(testRows)))
		for _, t := range []*ticket{old, tk, later} {
			w.wantObject(t, object(w.t, "x"))
		}
	})
}

// What was promised and has come needs no more signs of life, claimed or not.
func TestKeptPromiseNeedsNoPings(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		tk := w.grant(want("x"))[0]
		p.reserve(tk)
		p.deliver(tk, "x")
		time.Sleep(10 * time.Second)
		p.wantAlive()
		w.wantObject(tk, object(t, "x"))
	})
}

// A transfer that is cancelled while its object is checked is no silence of its sender, who has promised
// another.
func TestCancelIsNoSilence(t *testing.T) {
	inBubble(t, 2, func(w *world, p, _ *rawPeer) {
		tks := w.grant(want("cancelled"), want("promised"))
		checking, proceed := make(chan struct{}), make(chan struct{})
		open := w.open
		w.open = func(wt Want, obj []byte, c *embedding.Checker) (embedding.Meta, error) {
			close(checking)
			<-proceed
			return open(wt, obj, c)
		}
		p.reserve(tks[1])
		h := data(tks[0])
		p.write(append(h.append(nil), object(t, "cancelled")...))
		<-checking
		tks[0].Cancel()
		w.open = open
		close(proceed)
		p.wantAck(h, statusCancelled)
		time.Sleep(time.Second)
		p.deliver(tks[1], "promised")
		w.wantObject(tks[1], object(t, "promised"))
	})
}

// An author whose own request has ended is forgotten when another brings what its followers wait for.
func TestAuthorIsReplaced(t *testing.T) {
	inBubble(t, 1, func(w *world, p, q *rawPeer) {
		author, follower := w.grant(want("x"))[0], w.grant(want("x"))[0]
		p.reserve(author)
		author.Cancel()
		q.deliver(follower, "x")
		w.wantObject(follower, object(t, "x"))
		h := data(author)
		p.write(append(h.append(nil), object(t, "x")...))
		p.wantAck(h, statusCancelled)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.live) != 0 {
			t.Errorf("%d transfers are still alive", len(w.live))
		}
	})
}

// A second sender cannot take a reservation over; the same one may repeat it.
func TestReserveIsIdempotent(t *testing.T) {
	inBubble(t, 1, func(w *world, p, q *rawPeer) {
		tk := w.grant(want("a"))[0]
		p.reserve(tk)
		p.reserve(tk)
		q.wantAnswer(frameGrant, q.say(frameReserve, tk, ""), statusBusy)
		p.deliver(tk, "a")
		w.wantObject(tk, object(t, "a"))
		q.wantAnswer(frameGrant, q.say(frameReserve, tk, ""), statusComplete)
	})
}

// A cancel that comes before the reserve wins.
func TestCancelBeforeReserve(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		tk := w.grant(want("a"))[0]
		tk.Cancel()
		p.wantAnswer(frameGrant, p.say(frameReserve, tk, ""), statusCancelled)
	})
}
