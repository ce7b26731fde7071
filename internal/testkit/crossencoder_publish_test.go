// SPDX-License-Identifier: Apache-2.0

package testkit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/embedding"
	"afterimage/internal/publish"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// counted returns how many publications of w had an outcome; pending its gauges.
func (w *worker) counted(o publish.Outcome) float64 {
	return w.series("afterimage_publish_objects_total", string(o))
}
func (w *worker) pendingItems() float64 { return w.series("afterimage_publish_pending_objects", "") }
func (w *worker) pendingBytes() float64 { return w.series("afterimage_publish_pending_bytes", "") }

func (w *worker) series(name, label string) float64 {
	w.f.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(w.publisher.Metrics())
	families, err := reg.Gather()
	if err != nil {
		w.f.Fatal(err)
	}
	for _, fam := range families {
		for _, m := range fam.GetMetric() {
			if fam.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	w.f.Fatalf("no series %s{%s}", name, label)
	return 0
}

// Original: an output that is no matrix, or of a dtype that the format lacks, is refused before anything is
// registered. Here every object has rows and columns by its type; one whose bytes are not rows x cols, one
// without any, and one with another dtype stand for it.
func TestNonMatrixOutputIsRejectedBeforeRegistration(t *testing.T) {
	f := newFleet(t)
	w := f.worker(nil)
	it := f.item("a", 2)
	buf, m := f.object(it, 1)
	defer buf.Release()
	for name, change := range map[string]func(*embedding.Meta){
		"vector": func(m *embedding.Meta) { m.Cols = 0 },
		"scalar": func(m *embedding.Meta) { m.Rows, m.Cols = 0, 0 },
		"cube":   func(m *embedding.Meta) { m.Rows *= 2 },
		"int8":   func(m *embedding.Meta) { m.DType = 1 },
	} {
		bad := m
		change(&bad)
		w.publisher.Publish(embedding.Key(name), buf, bad)
	}
	w.flush()
	if empty, wrong := w.counted(publish.Empty), w.counted(publish.Malformed); empty != 3 || wrong != 1 {
		t.Errorf("%v without rows or columns and %v of another size refused, want 3 and 1", empty, wrong)
	}
	if n := f.store.AllCalls(); n != 0 {
		t.Errorf("%d Store calls, want none", n)
	}
}

// Original: with a miss, an object of an older format, hits, some hits, and each kind of fault, only what
// was not a hit is encoded, all outputs are correct and bound to their push, nothing stays pending, and a
// second worker loads what the first published.
func TestReusePipeline(t *testing.T) {
	for name, c := range map[string]struct {
		planted string // ids in the Store
		fault   testkit.Fault
		encoded string
	}{
		"miss":                 {encoded: "abc"},
		"legacy":               {encoded: "abc"},
		"hit":                  {planted: "abc"},
		"partial":              {planted: "ac", encoded: "b"},
		"get-failure":          {planted: "abc", fault: testkit.Fault{Err: testkit.GetError(testkit.RPCFail)}, encoded: "abc"},
		"short-data":           {planted: "abc", fault: testkit.Fault{Mangle: func(_ embedding.Key, o []byte) []byte { return o[:len(o)-4] }}, encoded: "b"},
		"lease-expired":        {planted: "abc", fault: testkit.Fault{Err: testkit.GetError(testkit.LeaseExpired)}, encoded: "b"},
		"registration-failure": {planted: "abc", fault: testkit.Fault{Err: fmt.Errorf("%w: code %d", store.ErrRejected, testkit.WriteFail)}, encoded: "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			items := []resolve.Item{f.item("a", 1), f.item("b", 2), f.item("c", 3)}
			for _, id := range c.planted {
				f.plantItem(items[id-'a'], byte(id))
			}
			if name == "legacy" {
				old := f.ns
				old.Protocol = "v2"
				f.plant(old.Key("a"), []byte("an object of another format"))
			}
			if c.encoded == "b" { // only one item is at fault
				c.fault.Keys = map[embedding.Key]bool{items[1].Key: true}
			}
			f.store.Set(testkit.Get, c.fault)
			w := f.worker(nil)
			encoded := ""
			for i, r := range w.resolver.Resolve(t.Context(), items) {
				id := "abc"[i]
				if r.Buf == nil { // the engine's part
					encoded += string(id)
					w.publish(items[i], id)
					continue
				}
				if _, p, err := f.ns.Protocol.Open(r.Buf.Bytes(), items[i].Key, items[i].Contract); err != nil || string(p) != string(payload(items[i].Contract, id)) {
					t.Errorf("%c: wrong output (%v)", id, err)
				}
				r.Buf.Release() // what a push would hold
			}
			if encoded != c.encoded {
				t.Errorf("encoded %q, want %q", encoded, c.encoded)
			}
			w.flush()
			if n := w.pendingItems(); n != 0 {
				t.Errorf("%v publications pending", n)
			}
			f.store.Set(testkit.Get, testkit.Fault{})
			for i, it := range items {
				f.worker(nil).loaded(it, "abc"[i])
			}
			if w.guard.Err() != nil {
				t.Errorf("poisoned: %v", w.guard.Err())
			}
		})
	}
}

// Original: when the header cannot be registered the tensor's registration is undone, nothing is put, and
// the memory is free though the failed future lives. Here a PUT registers nothing; what is refused before
// a byte was sent leaves neither object nor memory, though its error is kept.
func TestPartialRegistrationRejectionReleasesPublication(t *testing.T) {
	f := newFleet(t)
	w := f.worker(nil)
	refused := fmt.Errorf("%w: registration refused", store.ErrRejected)
	f.store.Set(testkit.Put, testkit.Fault{Err: refused})
	w.publish(f.item("a", 2), 1)
	w.flush()
	if n := w.counted(publish.Rejected); n != 1 {
		t.Errorf("%v rejected, want 1", n)
	}
	if n := f.srv.Stats().Objects; n != 0 {
		t.Errorf("%d objects in the Store, want none", n)
	}
	if f.held() != 0 || w.pendingBytes() != 0 {
		t.Errorf("%d bytes in use, %v charged; want none while %v lives", f.held(), w.pendingBytes(), refused)
	}
}

// Original: the owners of memory that native I/O may still use are kept when a get, a put, or the end of a
// registration is uncertain, and freed when a put was refused for its quota. Registrations end here when
// the client closes.
func TestNativeIOOwners(t *testing.T) {
	it := func(f *fleet) resolve.Item { return f.item("a", 2) }
	get := func(f *fleet, w *worker) {
		f.plantItem(it(f), 1)
		f.store.Set(testkit.Get, testkit.Fault{Err: testkit.GetError(testkit.TransferFail)})
		w.load(it(f))
	}
	put := func(code int) func(*fleet, *worker) {
		return func(f *fleet, w *worker) {
			f.store.Set(testkit.Put, testkit.Fault{Err: testkit.PutError(code)})
			w.publish(it(f), 1)
			w.flush()
		}
	}
	for name, c := range map[string]struct {
		do   func(*fleet, *worker)
		held bool
	}{
		"get":          {get, true},
		"put":          {put(testkit.TransferFail), true},
		"rejected-put": {put(testkit.QuotaExceeded), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			w := f.worker(nil)
			c.do(f, w)
			w.publisher.Close(f.ended())
			if got := f.held() > 0; got != c.held {
				t.Errorf("memory held: %v, want %v", got, c.held)
			}
			if c.held {
				w.poisoned()
			} else if w.guard.Err() != nil || len(w.fatal) > 0 {
				t.Errorf("poisoned: %v", w.guard.Err())
			}
			f.stuck = c.held && name == "put" // memory of a get is the Store's own to hold
		})
	}
	// read-unregister and unregister: a client that drained unconfirmed calls fails to close. What it
	// may still use stays.
	t.Run("unregister", func(t *testing.T) {
		f := newFleet(t)
		c := &client{FaultStore: f.store, closeErr: errors.New("unregister fault")}
		g, err := store.NewGuard(store.GuardConfig{Store: c, Arena: f.arena, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		f.store.Set(testkit.Put, testkit.Fault{Err: store.ErrUnconfirmed})
		buf, _ := f.object(it(f), 1)
		err = g.Put(t.Context(), it(f).Key, buf, store.PutOptions{})
		buf.Release()
		if !errors.Is(err, store.ErrUnconfirmed) {
			t.Fatal(err)
		}
		if err := g.Close(); !errors.Is(err, c.closeErr) || f.held() == 0 {
			t.Errorf("Close: %v, %d bytes held; want the fault, and the memory kept", err, f.held())
		}
		c.closeErr = nil
		if err := g.Close(); err != nil || f.held() != 0 {
			t.Errorf("Close: %v, %d bytes held; want none once the Store let go", err, f.held())
		}
	})
}

// gate holds PUTs one by one.
type gate struct {
	f *fleet
	c chan struct{}
}

func (g *gate) next(err error) {
	old := g.c
	g.c = make(chan struct{})
	g.f.store.Set(testkit.Put, testkit.Fault{Hold: g.c, Err: err})
	if old != nil {
		close(old)
		synctest.Wait()
	}
}

// Original: a publication that ends while others are reaped keeps its fault, which is raised at the end,
// and the others' memory is given back, whether they share storage with it or not.
func TestCompletionRacePreservesFailureAndReclaimsOtherItems(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				w := f.worker(func(c *config) { c.publish.Timeout = time.Hour })
				g := gate{f: f}
				g.next(nil)
				a, m := f.object(f.item("a", 1), 1)
				b := a.Retain()
				if !shared {
					b.Release()
					b, _ = f.object(f.item("b", 1), 2)
				}
				w.publisher.Publish(f.ns.Key("a"), a, m)
				w.publisher.Publish(f.ns.Key("b"), b, m)
				w.publish(f.item("c", 1), 3)
				w.cache.Put(f.ns.Key("a"), a, m)
				a.Release()
				b.Release()
				synctest.Wait()
				g.next(testkit.PutError(testkit.TransferFail)) // for b; a ends well
				if err := w.publisher.Err(); err != nil {
					t.Errorf("a fault before there was one: %v", err)
				}
				g.next(nil)
				synctest.Wait()
				if err := w.publisher.Err(); !errors.Is(err, store.ErrMustExit) {
					t.Errorf("the fault is %v, want %v", err, store.ErrMustExit)
				}
				if rs := w.resolver.Resolve(t.Context(), []resolve.Item{f.item("a", 1)}); !errors.Is(rs[0].Err, store.ErrMustExit) {
					t.Errorf("the next resolve gives %v, want the fault before any look into the cache", rs[0].Err)
				}
				w.cache.Close()
				if w.pendingItems() != 1 || w.pendingBytes() != 64 || f.held() != 64 {
					t.Errorf("%v items, %v bytes charged, %d held; want those of the failed one: 1, 64, 64", w.pendingItems(), w.pendingBytes(), f.held())
				}
				if err := w.publisher.Close(t.Context()); !errors.Is(err, store.ErrMustExit) {
					t.Errorf("Close: %v, want the fault", err)
				}
				w.poisoned()
				f.stuck = true
			})
		})
	}
}

// Original: P2P metadata does not wait for the event that makes an output ready to be published; shutdown
// waits for the queue, refuses late work, and closes once, after the unregistering. Here: the object can be
// sent while its PUT is stalled, and Publish takes no time.
func TestReadinessAndShutdownDoNotBlockP2PCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		w := f.worker(nil)
		f.store.Set(testkit.Exists, testkit.Fault{Delay: 5 * time.Second})
		start := time.Now()
		buf, m := f.object(f.item("a", 2), 1)
		w.publisher.Publish(f.item("a", 2).Key, buf, m)
		if _, p, err := f.ns.Protocol.Open(buf.Bytes(), f.item("a", 2).Key, f.item("a", 2).Contract); err != nil || len(p) != 32 {
			t.Errorf("what would be sent: %d bytes, %v", len(p), err)
		}
		buf.Release()
		w.publish(f.item("b", 2), 2)
		if took := time.Since(start); took != 0 {
			t.Errorf("publishing took %v", took)
		}
		closed := make(chan error, 1)
		go func() {
			closed <- w.publisher.Close(context.Background())
		}()
		synctest.Wait()
		w.publish(f.item("late", 2), 3)
		if n := w.counted(publish.Closed); n != 1 {
			t.Errorf("%v refused as late, want 1", n)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(start); took != 10*time.Second || w.counted(publish.Stored) != 2 {
			t.Errorf("shutdown after %v with %v stored, want all 2 after 10s", took, w.counted(publish.Stored))
		}
		if err := w.guard.Close(); err != nil || w.client.closes.Load() != 1 {
			t.Errorf("Close: %v, closed %d times", err, w.client.closes.Load())
		}
	})
}
