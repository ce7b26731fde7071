// SPDX-License-Identifier: Apache-2.0

package quick

import (
	"io"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxBytes is the longest message that belongs here: copying it does not keep a thread from others.
const MaxBytes = 4 << 10

// Conn reads and writes a socket without telling Go's scheduler. Telling it that a thread may
// block makes it wake another one to watch, after each pause of a process that is idle but for these calls:
// 5 us on both sides of a call of 15 us. The sockets do not block, so there is nothing to watch. One
// goroutine at a time may read, and one may write.
type Conn struct {
	in, out    oneCall
	read       func(fd uintptr) bool
	write      func(fd uintptr) bool
	connection syscall.RawConn

	poll   Poll          // of reads
	least  time.Duration // that the answer which is read next takes
	polled bool          // during the read that is under way
	look   func() bool   // one look of poll
	fd     uintptr       // that look reads
}

// oneCall is a read or a write; it lies in Conn so that it costs no memory.
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

// New returns nil for a connection that is no unix socket.
func New(nc net.Conn, poll Poll) *Conn {
	u, ok := nc.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil // closed, as the next call on nc will say
	}
	c := &Conn{connection: raw, poll: poll}
	c.look = func() bool { return c.in.do(unix.SYS_READ, c.fd) }
	c.read = func(fd uintptr) bool {
		if c.in.do(unix.SYS_READ, fd) {
			return true
		}
		if c.polled { // and woken for nothing
			return false
		}
		c.polled, c.fd = true, fd
		return c.poll.Wait(c.least, c.look)
	}
	c.write = func(fd uintptr) bool { return c.out.do(unix.SYS_WRITE, fd) }
	return c
}

// Expect says how long what is read next takes at least to be there.
func (c *Conn) Expect(least time.Duration) { c.least = least }

// Read implements io.Reader; p is not empty.
func (c *Conn) Read(p []byte) (int, error) {
	c.in, c.polled = oneCall{p: p}, false
	err := c.connection.Read(c.read)
	n, errno := c.in.n, c.in.errno
	c.in.p = nil
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

// Write implements io.Writer.
func (c *Conn) Write(p []byte) (n int, err error) {
	for n < len(p) {
		c.out = oneCall{p: p[n:]}
		err := c.connection.Write(c.write)
		more, errno := c.out.n, c.out.errno
		c.out.p = nil
		switch {
		case err != nil:
			return n, err
		case errno != 0:
			return n, errno
		}
		n += more
	}
	return n, nil
}
