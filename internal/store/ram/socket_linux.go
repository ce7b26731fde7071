// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// unixBufBytes lifts 16 MiB transfers over a unix socket from 3.5 to 4.5 GB/s (2 vCPU EPYC).
	unixBufBytes = 1 << 20
	// readAhead holds the heads of a batch; larger reads go past the buffer, straight to the arena.
	readAhead = 4 << 10
	// maxPathBytes is sun_path without its final zero.
	maxPathBytes = 107
)

// transferTime is the time that n bytes may take beyond the timeout of a call. A socket moves them a
// hundred times faster; a host that swaps may not.
func transferTime(n int) time.Duration { return time.Duration(n>>25) * time.Second }

// tune sets socket buffers. A pipe has none.
func tune(nc net.Conn) {
	if u, ok := nc.(*net.UnixConn); ok {
		u.SetReadBuffer(unixBufBytes)
		u.SetWriteBuffer(unixBufBytes)
	}
}

func processUID() int { return os.Geteuid() }

// peer returns the credentials of the other end of a unix socket; nil for any other connection.
func peer(nc net.Conn) (*unix.Ucred, error) {
	u, ok := nc.(*net.UnixConn)
	if !ok {
		return nil, nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, credErr)
}

// checkPeer refuses a process of another user. Connections that are no sockets (NewLocal) pass.
func checkPeer(nc net.Conn, uid int) error {
	cred, err := peer(nc)
	if err != nil {
		return fmt.Errorf("ram: credentials of the peer: %w", err)
	}
	if cred != nil && int(cred.Uid) != uid {
		return fmt.Errorf("ram: process %d of user %d at the socket, want user %d", cred.Pid, cred.Uid, uid)
	}
	return nil
}

// Listen binds the unix socket of a Server, for its owner only. A socket file that a dead Server left
// behind is replaced; that of a live one is an error, and so is any other file.
func Listen(path string) (net.Listener, error) {
	if len(path) > maxPathBytes {
		return nil, fmt.Errorf("ram: socket path %q has %d bytes, limit %d: use a shorter directory", path, len(path), maxPathBytes)
	}
	// Two servers that start at once must not both find the file stale.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("ram: directory of the socket: %w", err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("ram: lock %s: %w", dir.Name(), err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("ram: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, fmt.Errorf("ram: %w", err)
	}
	return ln, nil
}

// removeStale clears the way for a new socket. Only a refused connection proves that nobody serves the
// old one.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("ram: %w", err)
	case st.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("ram: %s exists and is no socket: remove it or choose another path", path)
	}
	nc, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		defer nc.Close()
		pid := int32(0)
		if cred, err := peer(nc); err == nil && cred != nil {
			pid = cred.Pid
		}
		return fmt.Errorf("ram: %s is served by process %d: stop it or choose another path", path, pid)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("ram: cannot tell whether %s is in use: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ram: stale socket: %w", err)
	}
	return nil
}
