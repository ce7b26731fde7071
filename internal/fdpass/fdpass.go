// SPDX-License-Identifier: Apache-2.0

// Package fdpass sends file descriptors over unix sockets, along with the bytes of a protocol
// (SCM_RIGHTS). Write attaches them to the first byte of a message; a Source collects those that come
// with what it reads, until its owner takes them. A descriptor has one owner: files that were received
// belong to whoever took them, and those that nobody takes are closed.
//
// Nothing here is safe for concurrent use, and connections that are no unix sockets pass bytes only.
package fdpass

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// MaxFiles is the most descriptors that one message carries.
const MaxFiles = 3

// Source reads from a connection and keeps the descriptors that come with the bytes; a plain read would
// drop them.
type Source struct {
	Conn  net.Conn
	plain bool
	files []*os.File
}

// Read implements io.Reader.
func (s *Source) Read(p []byte) (int, error) {
	u, ok := s.Conn.(*net.UnixConn)
	if s.plain || !ok {
		return s.Conn.Read(p)
	}
	n, files, err := Read(u, p)
	s.files = append(s.files, files...)
	return n, err
}

// Read reads into p as u.Read does, and returns the descriptors that came with the bytes, which are the
// caller's.
func Read(u *net.UnixConn, p []byte) (n int, files []*os.File, err error) {
	var oob [128]byte
	n, oobn, _, _, err := u.ReadMsgUnix(p, oob[:])
	n, oobn = max(n, 0), max(oobn, 0) // -1 with some errors
	files, bad := parseRights(oob[:oobn])
	if err == nil {
		err = bad
	}
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, files, err
}

// Take hands over the descriptors that came, if there are exactly n of them, and ends keeping. Others
// are closed.
func (s *Source) Take(n int) []*os.File {
	s.plain = true
	files := s.files
	s.files = nil
	if len(files) != n {
		CloseAll(files)
		return nil
	}
	return files
}

// CloseAll closes files.
func CloseAll(files []*os.File) {
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
	if len(files) > MaxFiles {
		CloseAll(files)
		return nil, errors.New("more descriptors than a message carries")
	}
	return files, nil
}

// Write writes b and sends files along with its first byte.
func Write(nc net.Conn, b []byte, files ...*os.File) error {
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
