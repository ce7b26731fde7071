// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"afterimage/internal/proxy"
)

// A request on a data connection, little endian, which is answered before the next:
//
//	 0  u64  bytes
//	 8  u64  address
//	16  u8   operation: 0x81 is an acknowledged write
//	17  7 bytes, not read
//	24  the bytes
//
// The answer is a u64: a status in the lower half, statusMagic in the upper.
const (
	requestHead = 24
	opWrite     = 0x81
	statusMagic = 0x4d435456
)

// errRejected is the engine's word that the address is not one of its buffers; nothing was written.
var errRejected = errors.New("the Transfer Engine rejects the address")

// lateStatus is how long a status is waited for after sending failed: one that rejects the address comes while the
// bytes are still on their way.
const lateStatus = 100 * time.Millisecond

// writeHead returns the head of a write.
func writeHead(address uint64, n int) []byte {
	h := binary.LittleEndian.AppendUint64(make([]byte, 0, requestHead), uint64(n))
	return append(binary.LittleEndian.AppendUint64(h, address), opWrite, 0, 0, 0, 0, 0, 0, 0)
}

// engine is a data connection. After an error it must be closed.
type engine struct {
	nc net.Conn
	at *segment
}

// write copies p to address in the shard's memory and returns once it is there. On error any part of it may be, or
// may yet come there, unless the error is errRejected.
func (e *engine) write(ctx context.Context, address uint64, p []byte) error {
	end, _ := ctx.Deadline()
	_ = e.nc.SetDeadline(end)
	// Until the acknowledgement, the end of the connection, or of this process, is to drop what waits to be sent: a shard
	// that stands still would else be sent it when it goes on, long after the transfer was given up.
	e.linger(0)
	out := net.Buffers{writeHead(address, len(p)), p}
	_, sent := out.WriteTo(e.nc)
	if sent != nil {
		_ = e.nc.SetDeadline(time.Now().Add(lateStatus))
	}
	var b [8]byte
	_, err := io.ReadFull(e.nc, b[:])
	status := binary.LittleEndian.Uint64(b[:])
	switch {
	case err == nil && status == statusMagic<<32|1:
		return errRejected
	case sent != nil:
		return sent
	case err != nil:
		return fmt.Errorf("no acknowledgement: %w", err)
	case status != statusMagic<<32:
		return fmt.Errorf("status % x instead of an acknowledgement", b)
	}
	e.linger(-1)
	return nil
}

// linger sets what becomes of bytes that wait to be sent when the connection ends: with 0 they are dropped, with -1 the
// kernel goes on to send them.
func (e *engine) linger(seconds int) {
	if nc, ok := e.nc.(interface{ SetLinger(int) error }); ok {
		_ = nc.SetLinger(seconds) // fails on dead connections alone
	}
}

// idle says that the connection is still open as far as this side can know.
func (e *engine) idle() bool { return proxy.Quiet(e.nc) }

func (e *engine) close() { _ = e.nc.Close() }
