// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"afterimage/internal/proxy"
)

// Flags of a ZMTP 3 frame.
const (
	flagMore    = 1 // another frame of this message follows
	flagLong    = 2 // the length has eight bytes instead of one
	flagCommand = 4
)

const (
	greetingBytes = 64
	// maxReply bounds a message of the consumer's. Answers have 300 bytes per item.
	maxReply = 1 << 20
)

// greeting is what a peer of ZMTP 3.0 sends first: signature, version, mechanism
// NULL, not a server. The number is big endian.
//
//	0  u8   0xff       9  u8   0x7f      12  20 bytes  "NULL", zeros
//	1  u64  1         10  u8   3         32  u8        0
//	                  11  u8   0         33  31 bytes  0
func greeting() []byte {
	g := make([]byte, greetingBytes)
	g[0], g[8], g[9], g[10] = 0xff, 1, 0x7f, 3
	copy(g[12:], "NULL")
	return g
}

// readyCommand is the command that ends the handshake: a name, and properties of which each is a name with a length of
// one byte and a value with one of four.
func readyCommand() []byte {
	body := []byte("\x05READY")
	for _, p := range [][2]string{{"Socket-Type", "REQ"}, {"Identity", ""}} {
		body = append(append(body, byte(len(p[0]))), p[0]...)
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(p[1]))), p[1]...)
	}
	return append([]byte{flagCommand, byte(len(body))}, body...)
}

// appendFrame appends one frame of a message.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) < 256 {
		dst = append(dst, flags, byte(len(body)))
	} else {
		dst = binary.BigEndian.AppendUint64(append(dst, flags|flagLong), uint64(len(body)))
	}
	return append(dst, body...)
}

// requester is the REQ side of a connection: a request, its reply, the next request. After an error it must be closed,
// since the reply to a request that was given up may still come.
type requester struct {
	nc net.Conn
	r  *bufio.Reader
}

// newRequester does the handshake on nc, which it takes over.
func newRequester(ctx context.Context, nc net.Conn) (*requester, error) {
	q := &requester{nc: nc, r: bufio.NewReader(nc)}
	if err := q.handshake(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("ZeroMQ handshake: %w", err)
	}
	return q, nil
}

func (q *requester) handshake(ctx context.Context) error {
	q.bound(ctx)
	// Both messages at once: a peer of this mechanism waits for nothing in between.
	if _, err := q.nc.Write(append(greeting(), readyCommand()...)); err != nil {
		return err
	}
	var g [greetingBytes]byte
	if _, err := io.ReadFull(q.r, g[:]); err != nil {
		return err
	}
	if g[0] != 0xff || g[9] != 0x7f || g[10] < 3 || string(g[12:17]) != "NULL\x00" {
		return fmt.Errorf("the peer greets with % x, which is no ZMTP 3 without authentication", g[:17])
	}
	flags, body, err := q.frame()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || len(body) < 6 || string(body[:6]) != "\x05READY" {
		return fmt.Errorf("frame %#x %.40q, want the command READY", flags, body)
	}
	return nil
}

// bound has I/O end at the deadline of ctx.
func (q *requester) bound(ctx context.Context) {
	end, _ := ctx.Deadline() // without one, the zero time: no end
	_ = q.nc.SetDeadline(end)
}

// frame reads one frame.
func (q *requester) frame() (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err = io.ReadFull(q.r, head[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	if head[0]&flagLong != 0 {
		if _, err = io.ReadFull(q.r, head[2:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(head[1:])
	}
	if n > maxReply {
		return 0, nil, fmt.Errorf("a frame of %d bytes, want at most %d", n, maxReply)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(q.r, body)
	return head[0], body, err
}

// request sends one message of one part and returns the part that answers it.
func (q *requester) request(ctx context.Context, body []byte) ([]byte, error) {
	q.bound(ctx)
	msg := appendFrame(nil, flagMore, nil) // the empty part that ends the envelope
	if _, err := q.nc.Write(appendFrame(msg, 0, body)); err != nil {
		return nil, err
	}
	for part, size := 0, 0; ; {
		flags, b, err := q.frame()
		switch {
		case err != nil:
			return nil, err
		case flags&flagCommand != 0:
			continue // none is sent to a peer of 3.0, but one is no answer either
		}
		size += len(b)
		last := flags&flagMore == 0
		switch part++; {
		case size > maxReply:
			return nil, errors.New("the reply is too long")
		case part == 1 && (len(b) > 0 || last), part == 2 && !last:
			return nil, errors.New("the reply is not an empty part and one more")
		case last:
			return b, nil
		}
	}
}

// idle says that nothing came on the connection since its last reply, so that it is still open as far as this side
// can know.
func (q *requester) idle() bool { return q.r.Buffered() == 0 && proxy.Quiet(q.nc) }

func (q *requester) close() { _ = q.nc.Close() }
