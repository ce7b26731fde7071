// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// maxFiles is the most descriptors that one hello carries.
const maxFiles = 2

// source reads from a connection. During hello it keeps the descriptors that come with the bytes; a
// plain read would drop them.
type source struct {
	nc    net.Conn
	plain bool
	files []*os.File
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	u, ok := s.nc.(*net.UnixConn)
	if s.plain || !ok {
		return s.nc.Read(p)
	}
	var oob [128]byte
	n, oobn, _, _, err := u.ReadMsgUnix(p, oob[:])
	n, oobn = max(n, 0), max(oobn, 0) // -1 with some errors
	if files, bad := parseRights(oob[:oobn]); bad == nil {
		s.files = append(s.files, files...)
	} else if err == nil {
		err = bad
	}
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// take hands over the descriptors that came, if there are exactly n of them, and ends keeping. Others
// are closed.
func (s *source) take(n int) []*os.File {
	s.plain = true
	files := s.files
	s.files = nil
	if len(files) != n {
		closeAll(files)
		return nil
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// parseRights takes descriptors out of control data.
func parseRights(oob []byte) (files []*os.File, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // some other control message
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	if len(files) > maxFiles {
		closeAll(files)
		return nil, errors.New("more descriptors than a hello carries")
	}
	return files, nil
}

// writeWith writes b and sends files along with its first byte.
func writeWith(nc net.Conn, b []byte, files []*os.File) error {
	u, ok := nc.(*net.UnixConn)
	if !ok || len(files) == 0 {
		_, err := nc.Write(b)
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	n, _, err := u.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err == nil && n < len(b) {
		_, err = nc.Write(b[n:])
	}
	return err
}

// hungUp reports whether the other end of a connection was closed, or its process is gone. It does not
// wait. Connections that are no sockets never say so.
func hungUp(nc net.Conn) bool {
	u, ok := nc.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return true
	}
	gone := true
	_ = raw.Control(func(fd uintptr) { // fails for a connection closed on this side: gone
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		for {
			_, err := unix.Poll(fds[:], 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			gone = err != nil || fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
			return
		}
	})
	return gone
}
