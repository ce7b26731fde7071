// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"io"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quickBytes is the longest message that a quick reads or writes: a frame, not an object.
const quickBytes = readAhead

// quick moves short messages over a socket without telling Go's scheduler. Telling it that a thread may
// block makes it wake another one to watch, after each pause of a process that is idle but for these calls:
// 5 us on both sides of a call of 15 us. The sockets do not block, so there is nothing to watch. One
// goroutine at a time may read, and one may write.
type quick struct {
	in, out    oneCall
	read       func(fd uintptr) bool
	write      func(fd uintptr) bool
	connection syscall.RawConn
}

// oneCall is a read or a write; it lies in quick so that it costs no memory.
type oneCall struct {
	p     []byte
	n     int
	errno syscall.Errno
}

// do makes the system call, and reports false when it has to wait.
func (c *oneCall) do(trap, fd uintptr) bool {
	for {
		n, _, errno := unix.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(c.p))), uintptr(len(c.p)))
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		c.n, c.errno = int(n), errno
		return true
	}
}

// newQuick returns nil for a connection that is no socket.
func newQuick(nc net.Conn) *quick {
	u, ok := nc.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil // closed, as the next call on nc will say
	}
	q := &quick{connection: raw}
	q.read = func(fd uintptr) bool { return q.in.do(unix.SYS_READ, fd) }
	q.write = func(fd uintptr) bool { return q.out.do(unix.SYS_WRITE, fd) }
	return q
}

// receive reads into p, which is not empty, as an io.Reader does.
func (q *quick) receive(p []byte) (int, error) {
	q.in = oneCall{p: p}
	err := q.connection.Read(q.read)
	n, errno := q.in.n, q.in.errno
	q.in.p = nil
	switch {
	case err != nil:
		return 0, err
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// send writes all of p.
func (q *quick) send(p []byte) error {
	for len(p) > 0 {
		q.out = oneCall{p: p}
		err := q.connection.Write(q.write)
		n, errno := q.out.n, q.out.errno
		q.out.p = nil
		switch {
		case err != nil:
			return err
		case errno != 0:
			return errno
		}
		p = p[n:]
	}
	return nil
}

// tell writes a message: by q if it is short and there is a q.
func tell(nc net.Conn, q *quick, p []byte) error {
	if q != nil && len(p) <= quickBytes {
		return q.send(p)
	}
	_, err := nc.Write(p)
	return err
}
