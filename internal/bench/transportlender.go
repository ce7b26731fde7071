// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"afterimage/internal/control"
	"afterimage/internal/transport"
)

// An order tells the process that plays the Encoder to deliver an object: u32 index of the size, u32
// attempt, u64 generation, u64 bytes, 16 bytes of transfer id. It answers with one byte when the
// delivery has ended: 0 when it was confirmed. The address comes first, once, as text with its length.
const orderBytes = 40

// lender runs the hidden command that plays the Encoder.
func (l launcher) lender(sizes []int) func(ctx context.Context, socket string) (func(), error) {
	args := []string{"bench", "stub-lender", socketFlag}
	return func(ctx context.Context, socket string) (func(), error) {
		args := append(args, socket)
		for _, n := range sizes {
			args = append(args, "--size", strconv.Itoa(n))
		}
		var said struct{ Ready bool }
		c, err := startChild("stub lender", l.binary, args, l.env, func(line string) bool {
			return json.Unmarshal([]byte(line), &said) == nil && said.Ready
		})
		if err != nil {
			return nil, err
		}
		if err := c.await(ctx); err != nil {
			c.stop()
			return nil, err
		}
		return c.stop, nil
	}
}

const socketFlag = "--socket"

func order(index int, g control.Grant) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, orderBytes), uint32(index))
	b = binary.LittleEndian.AppendUint32(b, g.Attempt)
	b = binary.LittleEndian.AppendUint64(b, g.Generation)
	b = binary.LittleEndian.AppendUint64(b, uint64(g.Bytes))
	id, _ := hex.DecodeString(g.Transfer) // a receiver wrote it
	return append(b, id...)
}

// ServeLender plays an Encoder that has objects of the sizes, for a P/D that orders them at socket. It
// says in a line of JSON when it is ready, and ends with ctx.
func ServeLender(ctx context.Context, socket string, sizes []int, say io.Writer) (err error) {
	total := int64(0)
	for _, n := range sizes {
		total += int64(parcelWant(n, 0).Bytes) + 64
	}
	from, err := newEnds(2*total + 4*int64(parcelWant(sizes[len(sizes)-1], 0).Bytes)) // what is on loan is at most half
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	for _, n := range sizes {
		if _, err := from.parcel(parcelWant(n, 0)); err != nil {
			return err
		}
	}
	send, err := from.sender(true)
	if err != nil {
		return err
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer ln.Close()
	fmt.Fprintln(say, `{"ready":true}`)
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	nc, err := ln.Accept()
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	return ignoreEnd(ctx, from.deliver(ctx, nc, send))
}

// ignoreEnd drops the error of a connection that has ended as it should.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// deliver takes orders.
func (e *ends) deliver(ctx context.Context, nc net.Conn, send transport.Sender) error {
	var n [1]byte
	if _, err := io.ReadFull(nc, n[:]); err != nil {
		return err
	}
	var address strings.Builder
	if _, err := io.CopyN(&address, nc, int64(n[0])); err != nil {
		return err
	}
	b := make([]byte, orderBytes)
	for {
		if _, err := io.ReadFull(nc, b); err != nil {
			return err
		}
		g := control.Grant{
			Address: address.String(), Attempt: binary.LittleEndian.Uint32(b[4:]), Generation: binary.LittleEndian.Uint64(b[8:]),
			Bytes: int(binary.LittleEndian.Uint64(b[16:])), Transfer: hex.EncodeToString(b[24:]),
		}
		index := binary.LittleEndian.Uint32(b)
		if int(index) >= len(e.bufs) {
			return fmt.Errorf("order for object %d of %d", index, len(e.bufs))
		}
		ended := [1]byte{0}
		if send.Send(ctx, g, e.bufs[index]) != nil {
			ended[0] = 1
		}
		if _, err := nc.Write(ended[:]); err != nil {
			return err
		}
	}
}
