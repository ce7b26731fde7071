// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lend returns an arena that can be shared in every build, and a mapping of it.
func lend(t testing.TB, n int64) (*Arena, *Mapping) {
	t.Helper()
	a, err := New(Config{Name: "lender", Bytes: n, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	m := mapOf(t, a)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a, m
}

func mapOf(t testing.TB, a *Arena) *Mapping {
	t.Helper()
	f, err := a.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	m, err := MapShared(f, a.Stats().Capacity)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLoan(t *testing.T) {
	a, m := lend(t, 1<<16)
	pad := reserve(t, a, 100)
	defer pad.Release()
	b := reserve(t, a, 5)
	copy(b.Bytes(), "hello")
	b.Commit()
	back := 0
	l, err := m.Buf(b.Offset(), 5, func() { back++; b.Release() })
	if err != nil {
		t.Fatal(err)
	}
	if !l.Foreign() || b.Foreign() || l.In(a) || !b.In(a) {
		t.Error("a loan passes for own memory, or own memory for a loan")
	}
	if string(l.Bytes()) != "hello" || cap(l.Bytes()) != 5 || l.Len() != 5 || l.Offset() != b.Offset() {
		t.Errorf("loan of %q at %d, want hello at %d", l.Bytes(), l.Offset(), b.Offset())
	}
	l.Commit() // loans are committed already
	l.Abort()
	l.Retain().Release()
	if back != 0 {
		t.Fatal("the loan ended while a reference was held")
	}
	l.Release()
	if back != 1 || a.Stats().Committed != 0 {
		t.Errorf("the loan ended %d times, want 1", back)
	}
}

// The lender's death, and the owner's Close, take nothing from under a reader.
func TestLoanOutlivesItsLender(t *testing.T) {
	a, err := New(Config{Name: "lender", Bytes: 1 << 16, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	m := mapOf(t, a)
	b := reserve(t, a, 4096)
	fill(b.Bytes(), 9)
	l, err := m.Buf(b.Offset(), 4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Quarantine("on loan")
	if err := a.Detach(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Buf(0, 1, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("loan of a closed mapping: %v, want ErrClosed", err)
	}
	if i := differs(l.Bytes(), 9); i >= 0 {
		t.Errorf("byte %d changed", i)
	}
	l.Release()
}

func TestLoanOfHostileRange(t *testing.T) {
	_, m := lend(t, 1<<16)
	for _, r := range [][2]int64{
		{-1, 1}, {0, 0}, {0, -1}, {0, 1<<16 + 1}, {1 << 16, 1}, {1<<16 - 1, 2},
		{math.MaxInt64, 1}, {1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}, {math.MinInt64, math.MinInt64},
	} {
		if b, err := m.Buf(r[0], r[1], nil); err == nil {
			b.Release()
			t.Errorf("loan of %d bytes at %d in 64 KiB", r[1], r[0])
		}
	}
	b, err := m.Buf(1<<16-1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
}

// What a receiver gets can be read, and neither written nor cut short.
func TestShareIsReadOnly(t *testing.T) {
	a, _ := lend(t, 1<<16)
	f, err := a.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the descriptor can be mapped writable")
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the descriptor can be written")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("the file can be cut short")
	}
}

func TestMapSharedRefuses(t *testing.T) {
	a, _ := lend(t, 1<<16)
	f := func(file *os.File, bytes int64, want string) {
		t.Helper()
		m, err := MapShared(file, bytes)
		if err == nil {
			_ = m.Close()
		}
		if !errors.Is(err, ErrNotShared) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrNotShared with %q", err, want)
		}
	}
	good, err := a.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = good.Close() }()
	f(good, 1<<16+64, "65536 bytes, the lender says 65600")
	f(good, 0, "lender says 0")
	f(good, -1, "lender says -1")

	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	f(plain, 4096, "no seals")

	fd, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	open := os.NewFile(uintptr(fd), "open")
	defer func() { _ = open.Close() }()
	if err := open.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	f(open, 4096, "its size could change")
}

func TestRecall(t *testing.T) {
	a, m := lend(t, 1<<16)
	own := reserve(t, a, 64)
	own.OnRecall(func() { t.Error("own memory is recalled") })()
	own.Recall()
	own.Release()

	b, err := m.Buf(0, 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	asked := 0
	b.OnRecall(func() { asked++ })
	b.OnRecall(func() { t.Error("called after its interest ended") })()
	if b.Recalled() {
		t.Error("recalled before anybody asked")
	}
	b.Recall()
	b.Recall()
	if asked != 1 || !b.Recalled() {
		t.Errorf("asked %d times, want once", asked)
	}
	b.OnRecall(func() { asked++ }) // late: at once
	if asked != 2 {
		t.Error("who comes late is not told")
	}
}

func TestForeignMemoryIsNotQuarantined(t *testing.T) {
	_, m := lend(t, 1<<16)
	b, err := m.Buf(0, 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	defer func() {
		if r, _ := recover().(string); !strings.HasPrefix(r, "BUG: arena: Quarantine of foreign") {
			t.Errorf("got %q", r)
		}
	}()
	b.Quarantine("test")
}

// A mapping touches nothing that its lender has not touched: the page would be charged to the wrong
// process.
func TestMappingFollowsItsLender(t *testing.T) {
	const n = 2 * populateStep
	f, err := sealedFile("lender", n)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(make([]byte, populateStep), 0); err != nil {
		t.Fatal(err)
	}
	m, err := MapShared(f, n)
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	close(stopped)
	follow(m.mem, stopped)                // the first step
	follow(m.mem[populateStep:], stopped) // the second, at once
	if !resident(m.mem[:populateStep]) || resident(m.mem[populateStep:]) {
		t.Error("the part that the lender touched is not resident, or the other one is")
	}
	if err := m.Close(); err != nil { // does not wait for the lender
		t.Error(err)
	}
}
