// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// region is the memory of an arena: a shared mapping of a sealed memfd or, in race builds, Go memory.
type region struct {
	mem  []byte
	file *os.File // nil for Go memory
	stop chan struct{}
	once sync.Once // closes stop
	wg   sync.WaitGroup
}

// newMapped maps n bytes of a new memfd and starts to populate them in the background.
func newMapped(name string, n int64) (*region, error) {
	f, err := sealedFile(name, n)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = f.Close() // the error that counts is that of the mapping
		return nil, fmt.Errorf("mmap: %w", err)
	}
	// Pictures of users stay out of core dumps, which would also take minutes to write. Optional.
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP)
	r := &region{mem: mem, file: f, stop: make(chan struct{})}
	r.wg.Go(func() { populate(r.mem, r.stop) })
	return r, nil
}

// seals fix the size of a memfd for good.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// sealedFile returns a memfd whose size can never change, so that no holder of the descriptor can cut
// memory away under a reader (SIGBUS).
func sealedFile(name string, n int64) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // kernels before 6.3 do not know MFD_NOEXEC_SEAL
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(n); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("size the memfd: %w", err)
	}
	// Nobody but root reopens what Share gives away for writing; the descriptor here stays writable.
	if err := f.Chmod(0o400); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("protect the memfd: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("seal the memfd: %w", err)
	}
	return f, nil
}

// populateStep is how much is populated per system call, which bounds how long Close waits: about
// 3 ms at the 1.3 GB/s of first touches of a memfd (2 vCPU EPYC).
const populateStep = 4 << 20

// populate touches every page, so that no engine and no socket pays for first touches. It changes no
// content and may run beside all other use. Kernels before 5.14 refuse; pages then come at first use.
func populate(mem []byte, stop <-chan struct{}) {
	for off := 0; off < len(mem); off += populateStep {
		select {
		case <-stop:
			return
		default:
		}
		if unix.Madvise(mem[off:min(off+populateStep, len(mem))], unix.MADV_POPULATE_WRITE) != nil {
			return
		}
	}
}

// rest ends populating.
func (r *region) rest() {
	r.once.Do(func() {
		if r.stop != nil {
			close(r.stop)
		}
	})
	r.wg.Wait()
}

// close unmaps the memory. It is called once.
func (r *region) close() error {
	r.rest()
	mem := r.mem
	r.mem = nil
	if r.file == nil {
		return nil
	}
	return errors.Join(unix.Munmap(mem), r.file.Close())
}
