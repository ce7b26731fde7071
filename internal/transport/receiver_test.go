// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
	"afterimage/internal/testkit/faultconn"
)

func TestDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, func(c *ReceiverConfig) { c.Metrics = registered(t) })
		defer w.close()
		tks := w.grant(want("a"), want("b"))
		p := w.raw()
		defer p.nc.Close()
		for i, n := range []string{"b", "a"} { // any order
			h := data(tks[1-i])
			p.write(append(h.append(nil), object(t, n)...))
			p.wantAck(h, statusComplete)
		}
		w.wantObject(tks[0], object(t, "a"))
		w.wantObject(tks[1], object(t, "b"))
		if got := testutil.ToFloat64(w.m.transfers.WithLabelValues(sideReceiver, "claimed", "")); got != 2 {
			t.Errorf("counted %v claimed transfers, want 2", got)
		}
		if _, _, err := tks[0].Wait(context.Background()); !errors.Is(err, ErrClaimed) {
			t.Errorf("second Wait: %v", err)
		}
	})
}

// TestT12WrongFrames: each is drained, counted and answered, and the connection goes on.
func TestT12WrongFrames(t *testing.T) {
	f := func(name string, change func(*header), st status, reason string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2)
			defer w.close()
			tks := w.grant(want("a"), want("other"))
			p := w.raw()
			defer p.nc.Close()
			h := data(tks[0])
			change(&h)
			p.write(append(h.append(nil), make([]byte, h.Length)...))
			p.wantAck(h, st)
			w.wantDropped(reason, 1)
			p.wantAlive()

			h = data(tks[1])
			p.write(append(h.append(nil), object(t, "other")...))
			p.wantAck(h, statusComplete)
			w.wantObject(tks[1], object(t, "other"))
			if name == "wrong size" {
				if _, _, err := tks[0].Wait(context.Background()); !errors.Is(err, ErrMissing) {
					t.Errorf("%s: the named transfer: %v", name, err)
				}
			}
		})
	}
	f("unknown transfer", func(h *header) { h.Transfer[3] ^= 1 }, statusUnknown, "unknown")
	f("old attempt", func(h *header) { h.Attempt-- }, statusAttempt, "attempt")
	f("later attempt", func(h *header) { h.Attempt++ }, statusAttempt, "attempt")
	f("T07 other generation", func(h *header) { h.Generation++ }, statusGeneration, "generation")
	f("no generation", func(h *header) { h.Generation = 0 }, statusGeneration, "generation")
	f("wrong size", func(h *header) { h.Length-- }, statusSize, "size")
	f("empty", func(h *header) { h.Length = 0 }, statusSize, "size")
}

// TestT12Malformed: the connection closes and nothing else happens.
func TestT12Malformed(t *testing.T) {
	noise := make([]byte, 4096)
	if _, err := rand.NewChaCha8([32]byte{1}).Read(noise); err != nil {
		t.Fatal(err)
	}
	f := func(name string, greeted bool, send func(tk *ticket) []byte) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2)
			defer w.close()
			tks := w.grant(want("a"), want("other"))
			bad, good := w.mute(), w.raw()
			if greeted {
				bad.nc.Close()
				bad = w.raw()
			}
			defer bad.nc.Close()
			defer good.nc.Close()
			go bad.nc.Write(send(tks[0])) // may be cut off half-way
			bad.wantClosed()
			synctest.Wait()
			w.wantDropped("malformed", 1)

			for i, n := range []string{"a", "other"} {
				h := data(tks[i])
				good.write(append(h.append(nil), object(t, n)...))
				good.wantAck(h, statusComplete)
				w.wantObject(tks[i], object(t, n))
			}
			if t.Failed() {
				t.Logf("case %s", name)
			}
		})
	}
	fixed := func(b []byte) func(*ticket) []byte { return func(*ticket) []byte { return b } }
	f("random bytes instead of hello", false, fixed(noise))
	f("data before hello", false, func(tk *ticket) []byte { return data(tk).append(nil) })
	f("hello that is no JSON", false, fixed(appendText(nil, header{Type: frameHello}, "{")))
	f("huge hello", false, fixed(header{Type: frameHello, Length: 1 << 40}.append(nil)))
	f("random bytes", true, fixed(noise))
	f("second hello", true, fixed(header{Type: frameHello}.append(nil)))
	f("grant from a sender", true, fixed(header{Type: frameGrant}.append(nil)))
	f("unknown type", true, fixed(header{Type: 200}.append(nil)))
	f("loan without memory", true, func(tk *ticket) []byte {
		h := data(tk)
		h.Type, h.Length = frameComplete, lendBytes
		return append(h.append(nil), make([]byte, lendBytes)...)
	})
	f("reserve with a body", true, fixed(header{Type: frameReserve, Length: 1}.append(nil)))
	f("credit from a sender", true, fixed(header{Type: frameCredit}.append(nil)))
	f("endless reason", true, fixed(header{Type: frameAbandon, Length: 1 << 40}.append(nil)))
	f("ping with a body", true, fixed(header{Type: framePing, Length: 1}.append(nil)))
	f("huge length", true, func(tk *ticket) []byte {
		h := data(tk)
		h.Length = 1 << 62
		return h.append(nil)
	})
	f("length beyond int64", true, func(tk *ticket) []byte {
		h := data(tk)
		h.Length = 1<<64 - 1
		return h.append(nil)
	})
	f("HTTP", false, fixed([]byte("GET / HTTP/1.1\r\nHost: somebody.example\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n")))
}

func TestT12Duplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		tk := w.grant(want("a"))[0]
		p := w.raw()
		defer p.nc.Close()
		h := data(tk)
		p.write(append(h.append(nil), object(t, "a")...))
		p.wantAck(h, statusComplete)
		for range 2 { // once while the object is unclaimed, once after
			p.write(append(h.append(nil), make([]byte, h.Length)...))
			p.wantAck(h, statusComplete)
			if tk.state == ready {
				w.wantObject(tk, object(t, "a"))
			}
		}
		w.wantDropped("duplicate", 2)
	})
}

// TestRejected: an object that breaks its contract fails its transfer with that cause, on both sides.
func TestRejected(t *testing.T) {
	f := func(obj []byte, st status, cause error) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			defer w.close()
			tk := w.grant(want("a"))[0]
			p := w.raw()
			defer p.nc.Close()
			h := data(tk)
			p.write(append(h.append(nil), obj...))
			p.wantAck(h, st)
			if _, _, err := tk.Wait(context.Background()); !errors.Is(err, ErrMissing) || !errors.Is(err, cause) {
				t.Errorf("got %v, want ErrMissing because of %v", err, cause)
			}
			w.wantInUse(0)
			p.wantAlive()
		})
	}
	corrupt := object(t, "a")
	corrupt[len(corrupt)-1] ^= 1
	f(corrupt, statusCorrupt, embedding.ErrCorrupt)
	f(object(t, "b"), statusForeign, embedding.ErrForeign)
	f(make([]byte, objectBytes(testRows)), statusMalformed, embedding.ErrMalformed)
}

// TestT01LateBytes: the bytes of a cancelled transfer never reach the request that got its memory.
func TestT01LateBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		p := w.raw()
		defer p.nc.Close()
		a := w.grant(want("a"))[0]
		a.Cancel()
		b := w.grant(want("b"))[0] // the same memory: there is room for one only

		late := data(a)
		p.write(append(late.append(nil), object(t, "a")...))
		p.wantAck(late, statusCancelled)
		w.wantDropped("cancelled", 1)
		h := data(b)
		p.write(append(h.append(nil), object(t, "b")...))
		p.wantAck(h, statusComplete)
		w.wantObject(b, object(t, "b"))
	})
}

// The same with the cancel in the middle of the write: the memory comes back at once, though the
// writer has not moved, and the rest of its bytes goes nowhere.
func TestT01CancelWhileWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		p := w.raw()
		defer p.nc.Close()
		a := w.grant(want("a"))[0]
		obj, h := object(t, "a"), data(a)
		p.write(append(h.append(nil), obj[:100]...))
		synctest.Wait()
		start := time.Now()
		a.Cancel()
		if _, _, err := a.Wait(context.Background()); !errors.Is(err, ErrMissing) {
			t.Errorf("wait after cancel: %v", err)
		}
		b := w.grant(want("b"))[0]
		if d := time.Since(start); d > 0 {
			t.Errorf("memory came back after %v, want at once", d)
		}
		p.write(obj[100:])
		p.wantAck(h, statusCancelled)
		w.wantDropped("cancelled", 1)

		h = data(b)
		p.write(append(h.append(nil), object(t, "b")...))
		p.wantAck(h, statusComplete)
		w.wantObject(b, object(t, "b"))
	})
}

func TestCancelReadyButUnclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		p := w.raw()
		defer p.nc.Close()
		tk := w.grant(want("a"))[0]
		h := data(tk)
		p.write(append(h.append(nil), object(t, "a")...))
		p.wantAck(h, statusComplete)
		tk.Cancel()
		tk.Cancel()
		w.wantInUse(0)
		if _, _, err := tk.Wait(context.Background()); !errors.Is(err, ErrMissing) {
			t.Errorf("wait after cancel: %v", err)
		}
	})
}

func TestSecondWriterIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		p, q := w.raw(), w.raw()
		defer p.nc.Close()
		defer q.nc.Close()
		tk := w.grant(want("a"))[0]
		obj, h := object(t, "a"), data(tk)
		p.write(append(h.append(nil), obj[:10]...))
		synctest.Wait()
		q.write(append(h.append(nil), make([]byte, len(obj))...))
		q.wantAck(h, statusBusy)
		p.write(obj[10:])
		p.wantAck(h, statusComplete)
		w.wantObject(tk, obj)
	})
}

func TestCloseWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		p := w.raw()
		defer p.nc.Close()
		tks := w.grant(want("granted"), want("ready"), want("writing"))
		p.write(append(data(tks[1]).append(nil), object(t, "ready")...))
		p.wantAck(data(tks[1]), statusComplete)
		p.write(append(data(tks[2]).append(nil), 1, 2, 3))
		w.close()
		for _, tk := range tks {
			if _, _, err := tk.Wait(context.Background()); !errors.Is(err, ErrMissing) || !errors.Is(err, ErrClosed) {
				t.Errorf("wait after close: %v", err)
			}
		}
		if _, err := w.Grant(context.Background(), []Want{want("late")}); !errors.Is(err, ErrClosed) {
			t.Errorf("grant after close: %v", err)
		}
		w.close() // again is fine
	})
}

func TestReceiverConfigRefuses(t *testing.T) {
	good := ReceiverConfig{Arena: newArena(t, 1), Address: "127.0.0.1:0", Engine: "e", Cols: 1}
	if err := good.Validate(); err != nil {
		t.Errorf("good: %v", err)
	}
	for name, change := range map[string]func(*ReceiverConfig){
		"arena":    func(c *ReceiverConfig) { c.Arena = nil },
		"listener": func(c *ReceiverConfig) { c.Address = "" },
		"engine":   func(c *ReceiverConfig) { c.Engine = "" },
		"columns":  func(c *ReceiverConfig) { c.Cols = 0 },
		"negative": func(c *ReceiverConfig) { c.GrantTTL = -1 },
	} {
		c := good
		change(&c)
		if _, err := NewReceiver(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An object without sums of its own is held against the one in its frame, and senders send it.
func TestV3IsSummedOnTheWay(t *testing.T) {
	w3 := want("v3")
	w3.Protocol, w3.Bytes = embedding.V3, embedding.V3.ObjectBytes(layout(testRows), testCols, embedding.Float16)
	obj := make([]byte, w3.Bytes)
	if _, err := rand.NewChaCha8([32]byte{3}).Read(obj); err != nil {
		t.Fatal(err)
	}
	if err := embedding.V3.Seal(obj, w3.Key, embedding.Meta{Rows: testRows, Cols: testCols, DType: embedding.Float16}); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		defer w.close()
		p := w.raw()
		defer p.nc.Close()
		tk := w.grant(w3)[0]
		h := data(tk)
		h.Check = xxh3.Hash(obj)
		damaged := slices.Clone(obj)
		damaged[len(damaged)-1] ^= 1
		p.write(append(h.append(nil), damaged...))
		p.wantAck(h, statusCorrupt)
		if _, _, err := tk.Wait(context.Background()); !errors.Is(err, ErrMissing) || !errors.Is(err, embedding.ErrCorrupt) {
			t.Errorf("got %v, want ErrMissing because of ErrCorrupt", err)
		}
		p.wantAlive()

		tk = w.grant(w3)[0]
		s := w.sender()
		buf := w.buf(obj)
		if err := s.Send(t.Context(), tk.Grant(), buf); err != nil {
			t.Error(err)
		}
		buf.Release()
		w.wantObject(tk, obj)
		s.Close()

		hello := int64(len(appendText(nil, header{}, w.me.encode())))
		s = w.sender(func(c *SenderConfig) {
			c.Dial = faultconn.Dialer(w.pipe.Dial, func(int) faultconn.Plan {
				return faultconn.Plan{Write: faultconn.Faults{CorruptAt: hello + headerBytes + 100}} // in the payload
			})
		})
		tk = w.grant(w3)[0]
		buf = w.buf(obj)
		if err := s.Send(t.Context(), tk.Grant(), buf); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "sum") {
			t.Errorf("damaged on the way: %v, want ErrRejected for its sum", err)
		}
		buf.Release()
		s.Close()
	})
}
