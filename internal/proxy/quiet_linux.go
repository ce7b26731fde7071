// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"syscall"
)

// Quiet says whether nothing has come on an idle connection: neither its end nor a byte that nobody asked for.
func Quiet(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		is = err == syscall.EAGAIN
		return true
	})
	return err == nil && is
}
