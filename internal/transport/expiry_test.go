// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestT06DeadWriter: memory and waiters are free within WriterTimeout of the last byte.
func TestT06DeadWriter(t *testing.T) {
	f := func(name string, die func(*rawPeer), within time.Duration, text string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			defer w.close()
			p := w.raw()
			defer p.nc.Close()
			tk := w.grant(want("a"))[0]
			obj := object(t, "a")
			p.write(append(data(tk).append(nil), obj[:100]...))
			time.Sleep(time.Second)
			p.write(obj[100:200]) // progress buys time
			start := time.Now()
			die(p)
			_, _, err := tk.Wait(context.Background())
			if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: wait: %v, want %q", name, err, text)
			}
			if d := time.Since(start); d > within {
				t.Errorf("%s: took %v, want at most %v", name, d, within)
			}
			w.wantInUse(0)
			p.wantClosed()
		})
	}
	f("stall", func(*rawPeer) {}, 2*time.Second, "stalled for 2s after 200 of")
	f("death", func(p *rawPeer) { p.nc.Close() }, 0, "left after 200 of")
}

// A writer that trickles loses the memory soon, with its connection, and is refused when it comes again.
func TestTricklingWriterIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		p, q := w.raw(), w.raw()
		defer p.nc.Close()
		defer q.nc.Close()
		tk := w.grant(want("a"))[0]
		obj, h := object(t, "a"), data(tk)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for b := h.append(nil); len(obj) > 0; b, obj = obj[:1], obj[1:] {
				if _, err := p.nc.Write(b); err != nil {
					return
				}
				time.Sleep(1900 * time.Millisecond) // never silent for WriterTimeout
			}
			t.Error("all of the object was taken")
		}()
		start := time.Now()
		_, _, err := tk.Wait(context.Background())
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "bytes, and less than 2176 in the last 2s") {
			t.Errorf("wait: %v", err)
		}
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("it kept the memory for %v", d)
		}
		w.wantInUse(0)
		q.write(append(h.append(nil), object(t, "a")...))
		q.wantAck(h, statusFailed)
		if got := testutil.ToFloat64(w.m.transfers.WithLabelValues(sideReceiver, "failed", "slow")); got != 1 {
			t.Errorf("%v transfers failed as slow, want 1", got)
		}
		<-ended
	})
}

// Whatever part of a frame it is that trickles, the connection closes soon.
func TestTricklingFrames(t *testing.T) {
	f := func(name string, whole int, frame []byte) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			defer w.close()
			p := w.raw()
			defer p.nc.Close()
			p.wantAlive()
			start := time.Now()
			wrote := make(chan struct{})
			go func() {
				defer close(wrote)
				at := whole
				for b := frame[:at]; at < len(frame); b, at = frame[at:at+1], at+1 {
					if _, err := p.nc.Write(b); err != nil {
						return
					}
					time.Sleep(1900 * time.Millisecond) // never silent for WriterTimeout
				}
			}()
			p.wantClosed()
			if d := time.Since(start); d > 4*time.Second {
				t.Errorf("%s: the connection was kept for %v", name, d)
			}
			<-wrote
		})
	}
	f("head", 1, header{Type: framePing}.append(nil))
	f("text", headerBytes, appendText(nil, header{Type: frameAbandon}, strings.Repeat("x", 100)))
	unwanted := header{Type: frameData, Length: uint64(objectBytes(testRows))}
	f("object that nobody wants", headerBytes, append(unwanted.append(nil), object(t, "a")...))
}

// A head that is begun and not ended is not an idle connection.
func TestHeadThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		p := w.raw()
		defer p.nc.Close()
		p.wantAlive()
		start := time.Now()
		p.write(header{Type: framePing}.append(nil)[:40])
		p.wantClosed()
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("the connection was kept for %v", d)
		}
	})
}

// A writer that takes long, and brings each MiB in time, is served.
func TestSteadyWriterIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows = 3 << 20 / (2 * testCols)
		w := newWorld(t, 1, func(c *ReceiverConfig) { c.Arena = newArena(t, 4<<20) })
		defer w.close()
		p := w.raw()
		defer p.nc.Close()
		big := wantRows("a", rows)
		tk := w.grant(big)[0]
		obj, h := objectOf(t, big), data(tk)
		p.write(h.append(nil))
		for rest := obj; len(rest) > 0; {
			n := min(len(rest), 256<<10)
			p.write(rest[:n])
			rest = rest[n:]
			time.Sleep(400 * time.Millisecond) // 5 s in all
		}
		p.wantAck(h, statusComplete)
		w.wantObject(tk, obj)
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		defer w.close()
		p := w.raw()
		defer p.nc.Close()
		tks := w.grant(want("unwritten"), want("unclaimed"), want("awaited"))
		h := data(tks[1])
		p.write(append(h.append(nil), object(t, "unclaimed")...))
		p.wantAck(h, statusComplete)

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		got := make(chan error)
		go func() {
			buf, _, err := tks[2].Wait(ctx)
			if err == nil {
				buf.Release()
			}
			got <- err
		}()
		for range 40 {
			time.Sleep(time.Second)
			p.wantAlive()
		}
		w.wantInUse(int64(objectBytes(testRows))) // what is waited for does not expire
		for _, tk := range tks[:2] {
			if _, _, err := tk.Wait(ctx); !errors.Is(err, ErrMissing) || !errors.Is(err, errLate) {
				t.Errorf("wait after expiry: %v", err)
			}
		}
		p.write(append(data(tks[0]).append(nil), object(t, "unwritten")...))
		p.wantAck(data(tks[0]), statusExpired)
		p.write(append(data(tks[2]).append(nil), object(t, "awaited")...))
		p.wantAck(data(tks[2]), statusComplete)
		if err := <-got; err != nil {
			t.Errorf("awaited: %v", err)
		}
	})
}

// Waiting in vain does not keep a transfer for ever.
func TestExpiryAfterLastWaiterLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		tk := w.grant(want("a"))[0]
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := tk.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrMissing) {
			t.Errorf("wait: %v, want the deadline and nothing else", err)
		}
		w.wantInUse(int64(objectBytes(testRows)))
		time.Sleep(31 * time.Second)
		w.wantInUse(0)
	})
}

func TestSenderGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		p := w.raw()
		defer p.nc.Close()
		tk := w.grant(want("a"))[0]
		h := data(tk)
		h.Type, h.Length = frameAbandon, 0
		p.write(h.append(nil))
		if _, _, err := tk.Wait(context.Background()); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "gave up") {
			t.Errorf("wait: %v", err)
		}
		p.write(h.append(nil))
		p.wantAlive()
		w.wantDropped("late abandon", 1)
	})
}

func TestTombstones(t *testing.T) {
	p := new(tombstones)
	if _, ok := p.of(transferID{}); ok {
		t.Error("an id that was never used is remembered")
	}
	id := func(i int) transferID { return transferID{byte(i), byte(i >> 8), byte(i >> 16)} }
	for i := range 2 * nTombstones {
		p.add(id(i), claimed)
	}
	if _, ok := p.of(id(9)); ok {
		t.Error("an old one whose place was taken is remembered")
	}
	if s, ok := p.of(id(nTombstones + 9)); !ok || s != claimed {
		t.Errorf("got %v, %v; want claimed", s, ok)
	}
}
