// SPDX-License-Identifier: Apache-2.0

//go:build !race

package arena

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Another process would see what a Buf holds through the arena's descriptor, could not write through
// a read-only reopening, and could not change the size.
func TestFileSharesTheRegion(t *testing.T) {
	a := newArena(t, 1<<16)
	pad := reserve(t, a, 100)
	defer pad.Release()
	b := reserve(t, a, 5)
	defer b.Release()
	copy(b.Bytes(), "hello")

	ro, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", a.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ro.Close() }()
	mem, err := unix.Mmap(int(ro.Fd()), 0, 1<<16, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	if got := string(mem[b.Offset() : b.Offset()+5]); got != "hello" {
		t.Errorf("the file holds %q, want hello", got)
	}
	if _, err := unix.Mmap(int(ro.Fd()), 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("a read-only descriptor can be mapped writable")
	}
	for _, size := range []int64{0, 1 << 20} {
		if err := a.File().Truncate(size); err == nil {
			t.Errorf("the sealed file can be resized to %d", size)
		}
	}
}

// Close does not wait until a large arena is populated, and the descriptor goes with it.
func TestCloseStopsPopulating(t *testing.T) {
	a, err := New(Config{Name: "large", Bytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	f := a.File()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stat(); err == nil {
		t.Error("the file is open after Close")
	}
}

// Every page is resident before anybody touches it, on kernels that can (5.14 on).
func TestPopulate(t *testing.T) {
	a := newArena(t, 3*populateStep+4096)
	a.region.wg.Wait()
	if err := unix.Madvise(a.region.mem[:4096], unix.MADV_POPULATE_WRITE); err != nil {
		return // an old kernel: pages come at first use
	}
	if !resident(a.region.mem) {
		t.Error("a page of a populated arena is not resident")
	}
}
