// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"net/http"
	"syscall"
	"testing"
)

// TestTransportTunes: to a worker on the same host, no more waits in the kernel than stays in the cache.
func TestTransportTunes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	req, err := http.NewRequest(http.MethodGet, "http://"+ln.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newTransport(0).link(req)
	if err != nil {
		t.Fatal(err)
	}
	defer l.conn.Close()
	bare, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	before := sendBuffer(t, bare)
	if err := bare.(*net.TCPConn).SetWriteBuffer(loopbackBufBytes); err != nil {
		t.Fatal(err)
	}
	// The kernel doubles what it is told, and has a limit of its own.
	if got, want := sendBuffer(t, l.conn), sendBuffer(t, bare); got != want || got == before {
		t.Errorf("the buffer has %d bytes, want %d, and not %d as one that nobody set", got, want, before)
	}
}

// sendBuffer returns SO_SNDBUF.
func sendBuffer(t *testing.T, c net.Conn) (n int) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { n, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
