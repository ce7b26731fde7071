// SPDX-License-Identifier: Apache-2.0

package proxy

import "net"

// loopbackBufBytes is the send buffer of a connection to a worker on the same host. The kernel doubles it for its own
// needs, and 1 MiB waits for a worker that reads nothing, where it would be 4 MiB. More only pushes what is in it out of the
// cache, from which the worker reads it. Connections between hosts, which have a distance to fill, keep the kernel's choice.
const loopbackBufBytes = 512 << 10

// tune prepares a connection.
func tune(conn net.Conn) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	if at, ok := c.RemoteAddr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
		_ = c.SetWriteBuffer(loopbackBufBytes) // without it all works, slower
	}
}
