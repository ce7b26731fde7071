// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"afterimage/internal/fdpass"
	"afterimage/internal/quick"
)

// source reads from a connection. During hello it keeps the descriptors that come with the bytes; a
// plain read would drop them.
type source struct {
	nc    net.Conn
	quick *quick.Conn // nil where there is none
	plain bool
	files []*os.File
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	u, ok := s.nc.(*net.UnixConn)
	switch {
	case s.plain && s.quick != nil && len(p) > 0 && len(p) <= quick.MaxBytes:
		return s.quick.Read(p)
	case s.plain || !ok:
		return s.nc.Read(p)
	}
	n, files, err := fdpass.Read(u, p)
	s.files = append(s.files, files...)
	return n, err
}

// tell writes a message: by q if it is short and there is a q.
func tell(nc net.Conn, q *quick.Conn, p []byte) error {
	var w io.Writer = nc
	if q != nil && len(p) <= quick.MaxBytes {
		w = q
	}
	_, err := w.Write(p)
	return err
}

// take hands over the descriptors that came, if there are exactly n of them, and ends keeping. Others
// are closed.
func (s *source) take(n int) []*os.File {
	s.plain = true
	files := s.files
	s.files = nil
	if len(files) != n {
		fdpass.CloseAll(files)
		return nil
	}
	return files
}

// probe tells whether the other end of a connection is still there.
type probe struct {
	mu   sync.Mutex // guards the fields below; they are here so that a look costs no memory
	raw  syscall.RawConn
	look func(fd uintptr)
	fds  [1]unix.PollFd
	gone bool
}

// newProbe returns the probe of nc; nil when nc is no socket.
func newProbe(nc net.Conn) *probe {
	u, ok := nc.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return &probe{gone: true} // closed
	}
	p := &probe{raw: raw}
	p.look = func(fd uintptr) {
		p.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
		errno := pollNow(&p.fds[0])
		for errno == unix.EINTR {
			errno = pollNow(&p.fds[0])
		}
		p.gone = errno != 0 || p.fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	}
	return p
}

// hungUp reports whether the other end was closed, or its process is gone. It does not wait. Connections
// that are no sockets never say so.
func (p *probe) hungUp() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raw != nil {
		p.gone = true
		_ = p.raw.Control(p.look) // fails for a connection closed on this side: gone
	}
	return p.gone
}

// pollNow looks at a descriptor without waiting, and without Go's scheduler (see quick.Conn).
func pollNow(fd *unix.PollFd) syscall.Errno {
	var now unix.Timespec
	_, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(fd)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno
}
