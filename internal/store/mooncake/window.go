// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"afterimage/internal/arena"
)

// window is the memory that mooncake_client maps: the arena itself.
//
// In race builds the arena is Go memory without a file. The window is then a mapping of its own with
// the same offsets, and every transfer is copied; that is for tests only.
type window struct {
	arena  *arena.Arena
	base   uint64 // address of the arena's first byte, which calls use
	bytes  int64
	file   *os.File
	bounce []byte // nil when file is the arena's
}

// openWindow finds out where a lies.
func openWindow(a *arena.Arena) (*window, error) {
	b, err := a.Reserve(1) // a Buf is all that knows an address
	if err != nil {
		return nil, fmt.Errorf("mooncake: look at the arena: %w", err)
	}
	defer b.Release()
	first := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes()))))
	w := &window{arena: a, base: first - uint64(b.Offset()), bytes: a.Stats().Capacity, file: a.File()}
	if w.file == nil {
		return w, w.openBounce()
	}
	return w, nil
}

func (w *window) openBounce() error {
	fd, err := unix.MemfdCreate("afterimage-bounce", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("mooncake: memfd_create: %w", err)
	}
	w.file = os.NewFile(uintptr(fd), "afterimage-bounce")
	err = w.file.Truncate(w.bytes)
	if err == nil {
		w.bounce, err = unix.Mmap(fd, 0, int(w.bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("mooncake: map %d bytes: %w", w.bytes, err), w.file.Close())
	}
	return nil
}

// at returns where b lies, and fails when it is of another arena.
func (w *window) at(b *arena.Buf) (place, error) {
	if !b.In(w.arena) {
		return place{}, errors.New("the buffer is not of the arena that is registered with Mooncake")
	}
	return place{w.base + uint64(b.Offset()), b.Len()}, nil
}

// send makes the content of b visible in the window.
func (w *window) send(b *arena.Buf) {
	if w.bounce != nil {
		copy(w.bounce[b.Offset():], b.Bytes())
	}
}

// receive makes the content of the window visible in b.
func (w *window) receive(b *arena.Buf) {
	if w.bounce != nil {
		copy(b.Bytes(), w.bounce[b.Offset():])
	}
}

func (w *window) close() error {
	if w.bounce == nil {
		return nil // the arena closes what is its own
	}
	return errors.Join(unix.Munmap(w.bounce), w.file.Close())
}
