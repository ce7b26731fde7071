// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBrokenWriteEnds: once the connection of a broken write is closed, no byte is sent on it any more. A peer that
// stands still meanwhile gets what its host had received by then, and not what waited on this side.
func TestBrokenWriteEnds(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	e := &engine{nc: near}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	const size = 64 << 20
	if err := e.write(ctx, 1, make([]byte, size)); err == nil {
		t.Fatal("a write that nobody took is acknowledged")
	}
	e.close()
	received := 0
	raw, err := far.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { received, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
		t.Fatal(err)
	}
	_ = far.SetDeadline(time.Now().Add(10 * time.Second))
	got, _ := io.Copy(io.Discard, far) // ends with the reset
	if got > int64(received) || got >= size {
		t.Errorf("%d bytes came, of which %d had come when the connection was closed", got, received)
	}
}
