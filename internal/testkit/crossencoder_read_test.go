// SPDX-License-Identifier: Apache-2.0

package testkit_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"afterimage/internal/arena"
	settings "afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// Original: the golden key of a prefix, an identity and a revision with separators in them, raw.
func TestKeyCombinesNamespaceAndIdentifier(t *testing.T) {
	ns := embedding.Namespace{Prefix: "team@cache", Model: "shared/model", Revision: "rev:1",
		Encoder: "encoder:default", DType: embedding.Float32, Protocol: embedding.V3}
	const want = "team@cache@embedding@model:shared/model@revision:rev:1@encoder:encoder:default" +
		"@dtype:torch.float32@protocol:v3@id:image@1"
	if got := ns.Key("image@1"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Original: a processor cache of 0 GB makes identifiers counters of the process, and is refused at start.
// Here identifiers are digests of the file whatever the cache; the setting is refused all the same, since
// who sets it expects the other meaning.
func TestSharedReuseRequiresContentStableIdentifiers(t *testing.T) {
	l, err := settings.Load(settings.Input{Env: []string{"AFTERIMAGE_ENCODER_MM_PROCESSOR_CACHE_GB=0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Validate(settings.RoleEncoder); err == nil || !strings.Contains(err.Error(), "mm_processor_cache_gb") {
		t.Errorf("got %v, want a refusal that names mm_processor_cache_gb", err)
	}
}

// Original: for each dtype what is loaded equals what was put, bit by bit; the object is 24 bytes and the
// tensor; one registration, the staging buffer's, is left. Here nothing is registered per call, so no
// memory but the caches' is left in use.
func TestTensorRoundTrip(t *testing.T) {
	for _, d := range []embedding.DType{embedding.Float16, embedding.BFloat16, embedding.Float32} {
		t.Run(d.String(), func(t *testing.T) {
			f := newFleet(t)
			f.ns.DType = d
			it := f.item("a", 3)
			one, two := f.worker(nil), f.worker(nil)
			one.publish(it, 7)
			one.flush()
			got := two.load(it)[0]
			if n := embedding.HeaderBytesV3 + 3*4*d.Bytes(); len(got) != n {
				t.Fatalf("object of %d bytes, want %d", len(got), n)
			}
			le := binary.LittleEndian
			if le.Uint32(got) != 0x4D4F4F4E || le.Uint32(got[4:]) != uint32(d) || le.Uint64(got[8:]) != 3 || le.Uint64(got[16:]) != 4 {
				t.Errorf("header % x", got[:embedding.HeaderBytesV3])
			}
			if !bytes.Equal(got[embedding.HeaderBytesV3:], payload(it.Contract, 7)) {
				t.Error("the payload differs from what was put")
			}
			one.cache.Close()
			two.cache.Close()
			if n := f.held(); n != 0 {
				t.Errorf("%d bytes in use after all was put and read", n)
			}
		})
	}
}

// Original: three objects of 40 bytes take two batch gets in a buffer of 80 and one in 120, each time they
// are loaded; outputs never alias the staging memory or change when the Store's bytes do.
func TestBatchReadsReuseRegistrationWithoutAliasingOutputs(t *testing.T) {
	for buffer, gets := range map[int64]int{80: 2, 120: 1} {
		t.Run(fmt.Sprint(buffer), func(t *testing.T) {
			f := newFleet(t)
			w := f.worker(func(c *config) { c.readBuffer = buffer })
			items := []resolve.Item{f.item("a", 1), f.item("b", 1), f.item("c", 1)}
			var first []resolve.Result
			for round := range 2 {
				for i, it := range items {
					f.plantItem(it, byte(10*round+i))
				}
				before := f.store.Calls(testkit.Get)
				rs := w.resolver.Resolve(t.Context(), items)
				if n := f.store.Calls(testkit.Get) - before; n != gets {
					t.Errorf("round %d: %d gets, want %d", round, n, gets)
				}
				for i, r := range rs {
					if r.Buf == nil || !bytes.Equal(r.Buf.Bytes()[24:], payload(items[i].Contract, byte(10*round+i))) {
						t.Fatalf("round %d, item %d: %+v", round, i, r)
					}
					defer r.Buf.Release()
					w.cache.Remove(items[i].Key)
				}
				if round == 0 {
					first = rs
				}
				if err := f.store.Remove(t.Context(), []embedding.Key{items[0].Key, items[1].Key, items[2].Key}); err != nil {
					t.Fatal(err)
				}
			}
			for i, r := range first {
				if !bytes.Equal(r.Buf.Bytes()[24:], payload(items[i].Contract, byte(i))) {
					t.Errorf("item %d of the first round changed when the Store's bytes did", i)
				}
			}
		})
	}
}

// Original: neither a miss nor an object larger than the read buffer allocates the staging buffer. Here
// neither takes a byte of the arena, not even for a moment.
func TestUnloadableInputsDoNotAllocateStaging(t *testing.T) {
	for _, name := range []string{"miss", "oversized"} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			w := f.worker(func(c *config) { c.readBuffer = 100 })
			it := f.item("a", 5) // 24 + 80 bytes
			if name == "oversized" {
				f.plantItem(it, 1)
			}
			before := f.arena.Stats().Peak
			want := map[string]resolve.Reason{"miss": resolve.Absent, "oversized": resolve.Oversize}[name]
			if r := w.resolver.Resolve(t.Context(), []resolve.Item{it})[0]; r.Buf != nil || r.Reason != want {
				t.Errorf("loaded %v, reason %q, want %q", r.Buf != nil, r.Reason, want)
			}
			if st := f.arena.Stats(); st.Peak != before || st.Reserved+st.Committed != 0 {
				t.Errorf("arena %+v, want it untouched", st)
			}
			if n := f.store.Calls(testkit.Get); n != 0 {
				t.Errorf("%d gets, want none", n)
			}
		})
	}
}

// Original: the staging buffer is host memory even when the default device is another. Here a Store reads
// into the arena that it was made with and no other, whichever else the process has.
func TestStagingStaysOnCPUWithNonCPUDefaultDevice(t *testing.T) {
	f := newFleet(t)
	other, err := arena.New(arena.Config{Name: "device", Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	it := f.item("a", 3)
	f.plantItem(it, 1)
	f.worker(nil).loaded(it, 1)
	if st := other.Stats(); st.Peak != 0 {
		t.Errorf("%d bytes of the other arena were used", st.Peak)
	}
}

// Original: an answer that is no list of whole numbers, each within its capacity or a safe code, makes the
// whole staging buffer unsafe: it is retained, the next call fails without native I/O, and close fails
// and unregisters nothing. Numbers and lists are types here; their place is taken by what a Go Store can
// get wrong.
func TestUnsafeBatchResultRetainsWholeStaging(t *testing.T) {
	drop := func(g store.Got) { // the Store keeps what it does not hand out
		if g.Buf != nil {
			g.Buf.Release()
		}
	}
	for name, answer := range map[string]func([]store.Got) []store.Got{
		"one unsafe code": func(gs []store.Got) []store.Got { // [40, -800]
			drop(gs[1])
			gs[1] = store.Got{Err: testkit.GetError(testkit.TransferFail)}
			return gs
		},
		"short":     func(gs []store.Got) []store.Got { drop(gs[1]); return gs[:1] },
		"long":      func(gs []store.Got) []store.Got { return append(gs, store.Got{Err: store.ErrMiss}) },
		"none":      func(gs []store.Got) []store.Got { drop(gs[0]); drop(gs[1]); return nil },
		"neither":   func(gs []store.Got) []store.Got { drop(gs[1]); gs[1] = store.Got{}; return gs }, // True instead of an int
		"both":      func(gs []store.Got) []store.Got { gs[1].Err = store.ErrMiss; return gs },        // nested lists
		"no class":  func(gs []store.Got) []store.Got { drop(gs[1]); gs[1] = store.Got{Err: errors.New("?")}; return gs },
		"the same":  func(gs []store.Got) []store.Got { drop(gs[1]); gs[1].Buf = gs[0].Buf.Retain(); return gs },
		"oversized": nil, // 41 bytes into 40
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			w := f.worker(nil)
			a, b := f.item("a", 1), f.item("b", 1)
			f.plantItem(a, 1)
			f.plantItem(b, 2)
			if answer == nil {
				f.store.Set(testkit.Get, testkit.Fault{Mangle: func(_ embedding.Key, o []byte) []byte { return append(o, 0) }})
			} else {
				f.store.Set(testkit.Get, testkit.Fault{Answer: answer})
			}
			for i, r := range w.resolver.Resolve(t.Context(), []resolve.Item{a, b}) {
				if r.Buf != nil || r.Reason != resolve.Unconfirmed || !errors.Is(r.Err, store.ErrMustExit) {
					t.Errorf("item %d: %+v, want it unconfirmed", i, r)
				}
			}
			if name != "none" && f.held() < 64 {
				t.Error("memory of an unsafe answer was given back")
			}
			f.store.Set(testkit.Get, testkit.Fault{})
			w.poisoned()
			f.stuck = name != "none"
		})
	}
}

// Original: when an output cannot be allocated nothing is poisoned; when the copy out of the staging
// buffer, its event or its completion fails, staging, event and targets are retained. Here there is no
// copy out: the read lands where the object is used. Its ways not to end are a code, an error without a
// class, and a deadline.
func TestCopyFailurePreservesStagingLifetime(t *testing.T) {
	t.Run("allocation", func(t *testing.T) {
		f := newFleet(t)
		w := f.worker(nil)
		it := f.item("a", 1)
		f.plantItem(it, 1)
		f.store.Set(testkit.Get, testkit.Fault{Times: 1, Err: fmt.Errorf("%w: %w", store.ErrRejected, arena.ErrFull)})
		r := w.resolver.Resolve(t.Context(), []resolve.Item{it})[0]
		if r.Reason != resolve.NoMemory || w.guard.Err() != nil || len(w.fatal) > 0 {
			t.Errorf("got %+v, guard %v: want no memory and nothing poisoned", r, w.guard.Err())
		}
		w.loaded(it, 1)
	})
	for name, err := range map[string]error{
		"copy":       testkit.GetError(testkit.Internal),
		"record":     errors.New("event fault"),
		"completion": fmt.Errorf("%w: %w", store.ErrUnconfirmed, context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			w := f.worker(nil)
			good, bad := f.item("good", 1), f.item("bad", 1)
			f.plantItem(good, 1)
			f.plantItem(bad, 2)
			f.store.Set(testkit.Get, testkit.Fault{Err: err, Keys: map[embedding.Key]bool{bad.Key: true}})
			for _, r := range w.resolver.Resolve(t.Context(), []resolve.Item{good, bad}) {
				if r.Reason != resolve.Unconfirmed {
					t.Errorf("got %+v, want unconfirmed", r)
				}
			}
			if f.held() == 0 {
				t.Error("no memory is retained")
			}
			f.store.Set(testkit.Get, testkit.Fault{})
			w.poisoned()
			f.stuck = true
		})
	}
}

// Original: revision, shape, dtype, magic, a short header, short and long data each make a miss of the
// object, and a valid one still loads afterwards.
func TestIncompatibleOutputIsAMiss(t *testing.T) {
	change := func(f func(o []byte) []byte) func(*fleet, resolve.Item) {
		return func(fl *fleet, it resolve.Item) {
			buf, _ := fl.object(it, 1)
			defer buf.Release()
			fl.plant(it.Key, f(bytes.Clone(buf.Bytes())))
		}
	}
	for name, plant := range map[string]func(*fleet, resolve.Item){
		"revision": func(f *fleet, it resolve.Item) {
			other := f.ns
			other.Revision = "rev:2"
			buf, _ := f.object(it, 1)
			defer buf.Release()
			f.plant(other.Key("a"), buf.Bytes())
		},
		"shape": change(func(o []byte) []byte { // 4 x 2 instead of 2 x 4, so the length is right
			binary.LittleEndian.PutUint64(o[8:], 4)
			binary.LittleEndian.PutUint64(o[16:], 2)
			return o
		}),
		"dtype":        change(func(o []byte) []byte { o[4] = byte(embedding.BFloat16); return o }),
		"magic":        change(func(o []byte) []byte { o[0]++; return o }),
		"short header": change(func(o []byte) []byte { return o[:20] }),
		"short data":   change(func(o []byte) []byte { return o[:len(o)-1] }),
		"long data":    change(func(o []byte) []byte { return append(o, 0) }),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			w := f.worker(nil)
			a, b := f.item("a", 2), f.item("b", 2)
			plant(f, a)
			f.plantItem(b, 2)
			got := w.load(a, b)
			if got[0] != nil || got[1] == nil {
				t.Errorf("found %d and %d bytes, want the second only", len(got[0]), len(got[1]))
			}
			w.publish(a, 3)
			w.flush()
			w.loaded(a, 3)
			if w.guard.Err() != nil {
				t.Errorf("poisoned: %v", w.guard.Err())
			}
		})
	}
}
