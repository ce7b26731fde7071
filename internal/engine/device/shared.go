// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// sharedPlan is a plan in a file. The file's lock guards it between processes, the Clock's mutex within
// one. Its times are those of the host's monotonic clock, which all processes share.
type sharedPlan struct{ f *os.File }

// planBytes is the length of the file: free and step, little endian.
const planBytes = 16

func openShared(path string) (*sharedPlan, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("device: shared clock: %w", err)
	}
	return &sharedPlan{f}, nil
}

func (s *sharedPlan) close() error { return s.f.Close() }

// change runs f on the plan while no other process can. A file that is too short is a device that
// nothing was given to.
func (s *sharedPlan) change(f func(*plan)) (err error) {
	fd := int(s.f.Fd())
	for err = unix.Flock(fd, unix.LOCK_EX); errors.Is(err, unix.EINTR); {
		err = unix.Flock(fd, unix.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("device: shared clock: lock: %w", err)
	}
	defer unix.Flock(fd, unix.LOCK_UN)
	var b [planBytes]byte
	p := plan{step: noStep}
	switch n, err := s.f.ReadAt(b[:], 0); {
	case n == planBytes:
		p.free = int64(binary.LittleEndian.Uint64(b[:]))
		p.step = int64(binary.LittleEndian.Uint64(b[8:]))
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("device: shared clock: %w", err)
	}
	f(&p)
	binary.LittleEndian.PutUint64(b[:], uint64(p.free))
	binary.LittleEndian.PutUint64(b[8:], uint64(p.step))
	_, err = s.f.WriteAt(b[:], 0)
	return err
}

// hostNanoseconds is the host's monotonic clock.
func hostNanoseconds() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with this clock
	return t.Nano()
}
