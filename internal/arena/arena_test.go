// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

// newArena returns an arena that must be empty again when the test ends.
func newArena(t testing.TB, n int64) *Arena {
	t.Helper()
	a, err := New(Config{Name: "test", Bytes: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if st := a.Stats(); st.Reserved != 0 || st.Committed != 0 || st.Largest != st.Capacity {
			t.Errorf("at the end: %+v, want all free in one range", st)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func reserve(t testing.TB, a *Arena, n int) *Buf {
	t.Helper()
	b, err := a.Reserve(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReserveCommitRelease(t *testing.T) {
	a := newArena(t, 1000)
	b := reserve(t, a, 100)
	if b.Len() != 100 || len(b.Bytes()) != 100 || cap(b.Bytes()) != 100 {
		t.Errorf("len %d, slice %d of %d, want 100", b.Len(), len(b.Bytes()), cap(b.Bytes()))
	}
	if p := uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes()))); p%align != 0 {
		t.Errorf("range at %#x, want a multiple of %d", p, align)
	}
	if got, want := a.Stats(), (Stats{Capacity: 1024, Reserved: 128, Peak: 128, Largest: 896}); got != want {
		t.Errorf("reserved: %+v, want %+v", got, want)
	}
	b.Commit()
	b.Commit()
	b.Abort() // does nothing after Commit
	if got, want := a.Stats(), (Stats{Capacity: 1024, Committed: 128, Peak: 128, Largest: 896}); got != want {
		t.Errorf("committed: %+v, want %+v", got, want)
	}
	if b.Shared() {
		t.Error("one reference counts as shared")
	}
	if !b.Retain().Shared() {
		t.Error("two references do not count as shared")
	}
	b.Release()
	if got := a.Stats().Committed; got != 128 {
		t.Errorf("%d bytes committed while a reference is left, want 128", got)
	}
	b.Release()
	reserve(t, a, 1).Abort()
}

func TestReserveErrors(t *testing.T) {
	a := newArena(t, 1024)
	f := func(n int, want error, text string) {
		t.Helper()
		if _, err := a.Reserve(n); !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("Reserve(%d): got %v, want %v with %q", n, err, want, text)
		}
	}
	f(1025, ErrTooLarge, "1025 bytes of 1024")
	f(int(^uint(0)>>1), ErrTooLarge, "of 1024")
	b := reserve(t, a, 512)
	f(513, ErrFull, "513 bytes wanted, 512 of 1024 in use, largest free range 512")
	b.Abort()
	for _, n := range []int{0, -1} {
		if _, err := a.Reserve(n); err == nil {
			t.Errorf("Reserve(%d) works", n)
		}
	}
}

// TestReserveAll: all or none; a failure leaves neither a trace nor a wake-up.
func TestReserveAll(t *testing.T) {
	a := newArena(t, 4*align)
	all, err := a.ReserveAll([]int{1, align, 2 * align})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{1, align, 2 * align} {
		if all[i].Len() != n {
			t.Errorf("range %d has %d bytes, want %d", i, all[i].Len(), n)
		}
	}
	all[1].Abort()
	before, freed := a.Stats(), a.Freed()
	if _, err := a.ReserveAll([]int{align, align}); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	select {
	case <-freed:
		t.Error("a failure woke who waits for memory")
	default:
	}
	if after := a.Stats(); after != before {
		t.Errorf("a failure left %+v, before it was %+v", after, before)
	}
	f := func(want string, sizes ...int) {
		t.Helper()
		if _, err := a.ReserveAll(sizes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", sizes, err, want)
		}
	}
	f("320 bytes of 256", 2*align, 3*align)
	f("cannot reserve 0 bytes", align, 0)
	all[0].Abort()
	all[2].Abort()
}

// C03: memory freed as small ranges serves large ones, whatever the order of freeing.
func TestSmallRangesServeLargeOnes(t *testing.T) {
	a := newArena(t, 64*mib)
	var bufs []*Buf
	for {
		b, err := a.Reserve(mib)
		if err != nil {
			if !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			break
		}
		bufs = append(bufs, b)
	}
	if len(bufs) != 64 {
		t.Fatalf("%d ranges of 1 MiB in 64 MiB", len(bufs))
	}
	rand.Shuffle(len(bufs), func(i, j int) { bufs[i], bufs[j] = bufs[j], bufs[i] })
	for _, b := range bufs {
		b.Release()
	}
	reserve(t, a, 8*mib).Release()
	reserve(t, a, 64*mib).Release()
}

// C03: an arena that is 97 % full of ranges in use refuses at once.
func TestFullRefusesSoftly(t *testing.T) {
	a := newArena(t, 100*mib)
	b := reserve(t, a, 97*mib)
	defer b.Release()
	if _, err := a.Reserve(8 * mib); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	reserve(t, a, 3*mib).Abort()
}

func TestTruncate(t *testing.T) {
	a := newArena(t, 1024)
	b := reserve(t, a, 1024)
	b.Truncate(1000) // same granule
	b.Truncate(65)
	if st := a.Stats(); b.Len() != 65 || len(b.Bytes()) != 65 || cap(b.Bytes()) != 65 || st.Reserved != 128 || st.Largest != 896 {
		t.Errorf("len %d, %+v, want 65 bytes in 128", b.Len(), st)
	}
	c := reserve(t, a, 896)
	c.Release()
	b.Commit()
	b.Release()
}

func TestMisusePanics(t *testing.T) {
	a := newArena(t, 4096)
	f := func(want string, misuse func(b *Buf)) {
		t.Helper()
		b := reserve(t, a, 64)
		defer func() {
			t.Helper()
			if r := fmt.Sprint(recover()); !strings.HasPrefix(r, "BUG: arena: "+want) {
				t.Errorf("got %s, want BUG: arena: %s", r, want)
			}
			if b.refs.Load() > 0 {
				b.Release()
			}
		}()
		misuse(b)
	}
	f("Release", func(b *Buf) { b.Release(); b.Release() })
	f("Release", func(b *Buf) { b.Abort(); b.Abort() })
	f("Retain", func(b *Buf) { b.Release(); b.Retain() })
	f("Bytes", func(b *Buf) { b.Release(); b.Bytes() })
	f("Commit", func(b *Buf) { b.Release(); b.Commit() })
	f("Truncate of a committed", func(b *Buf) { b.Commit(); b.Truncate(1) })
	f("Truncate to 0", func(b *Buf) { b.Truncate(0) })
	f("Truncate to 65", func(b *Buf) { b.Truncate(65) })
}

func TestClose(t *testing.T) {
	a, err := New(Config{Name: "test", Bytes: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	b := reserve(t, a, 64)
	if err := a.Close(); err == nil || !strings.Contains(err.Error(), "1 ranges of 64 bytes") {
		t.Errorf("Close with a range in use: got %v", err)
	}
	b.Bytes()[0] = 1 // still mapped
	b.Release()
	for range 2 {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Reserve(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Reserve after Close: got %v, want ErrClosed", err)
	}
	<-a.Freed()
}

func TestFreed(t *testing.T) {
	a := newArena(t, 1024)
	b := reserve(t, a, 1024)
	freed := a.Freed()
	select {
	case <-freed:
		t.Fatal("freed while full")
	default:
	}
	b.Truncate(64)
	<-freed
	freed = a.Freed()
	b.Release()
	<-freed
}

// Goroutines share ranges; each writes its own and checks that nobody else did.
func TestConcurrentUse(t *testing.T) {
	a := newArena(t, 4*mib)
	var wg sync.WaitGroup
	for id := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(id)))
			for range 300 {
				b, err := a.Reserve(1 + rng.IntN(mib))
				if err != nil {
					continue // full for the moment
				}
				fill(b.Bytes(), byte(id))
				if rng.IntN(2) == 0 {
					b.Truncate(1 + rng.IntN(b.Len()))
				}
				b.Commit()
				reader := b.Retain()
				wg.Go(func() {
					defer reader.Release()
					if i := differs(reader.Bytes(), byte(id)); i >= 0 {
						t.Errorf("byte %d of a range of goroutine %d was overwritten", i, id)
					}
				})
				b.Release()
			}
		})
	}
	wg.Wait()
}

// fill marks every 64th byte and the last one.
func fill(p []byte, v byte) {
	for i := 0; i < len(p); i += align {
		p[i] = v
	}
	p[len(p)-1] = v
}

func differs(p []byte, v byte) int {
	for i := 0; i < len(p); i += align {
		if p[i] != v {
			return i
		}
	}
	return -1
}
