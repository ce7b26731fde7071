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
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/transport"
)

// An order tells the process that plays the Encoder to deliver an object: u32 index of the size, u32
// attempt, u64 generation, u64 bytes, 16 bytes of transfer id. It answers with one byte when the
// delivery has ended: 0 when it was confirmed. The address comes first, once, as text with its length.
const orderBytes = 40

// loans measures from a P/D's reserving to its object being ready, when an Encoder on the same host has
// the object: memory is granted, the grant goes to the Encoder by a socket as its call would, and the
// Encoder lends what it has.
func (b TransportBench) loans(ctx context.Context) (rows []Row, err error) {
	dir, err := os.MkdirTemp("", "afterimage-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	into, err := newEnds(2 * int64(parcelWant(b.Sizes[len(b.Sizes)-1], 0).Bytes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, into.close()) }()
	x := &loanRun{into: into, sizes: b.Sizes}
	if x.recv, err = into.receiver(); err != nil {
		return nil, err
	}
	stop, err := x.startEncoder(ctx, b, filepath.Join(dir, "encoder.sock"))
	if err != nil {
		return nil, err
	}
	defer stop()
	for i, size := range b.Sizes {
		more, err := x.measure(ctx, i, size, b.Samples)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// loanRun is the P/D's side.
type loanRun struct {
	into  *ends
	sizes []int
	recv  transport.Receiver
	nc    net.Conn // to the Encoder
}

// startEncoder starts the other process and connects to it.
func (x *loanRun) startEncoder(ctx context.Context, b TransportBench, socket string) (stop func(), err error) {
	start := b.lender
	if start == nil {
		start = newLauncher(b.Binary, b.Env).lender(b.Sizes)
	}
	end, err := start(ctx, socket)
	if err != nil {
		return nil, err
	}
	if x.nc, err = net.Dial("unix", socket); err != nil {
		end()
		return nil, err
	}
	address := x.recv.Address()
	if _, err = x.nc.Write(append([]byte{byte(len(address))}, address...)); err != nil {
		x.nc.Close()
		end()
		return nil, err
	}
	return func() { x.nc.Close(); end() }, nil
}

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

// measure delivers one object again and again.
func (x *loanRun) measure(ctx context.Context, index, size, samples int) ([]Row, error) {
	const warmup = 20
	var us, sums []float64
	wire, copied, err := x.moved()
	if err != nil {
		return nil, err
	}
	for i := range warmup + samples {
		ready, sum, err := x.once(ctx, index, size, i < 2 || i == warmup+samples-1)
		if err != nil {
			return nil, err
		}
		if i >= warmup {
			us = append(us, ready)
		}
		if sum > 0 {
			sums = append(sums, sum)
		}
	}
	wire2, copied2, err := x.moved()
	if err != nil {
		return nil, err
	}
	name := sizeName(size) + " on loan"
	none := Absolute(name, "payload bytes copied, all runs", copied2-copied, 0)
	ok := none.Value == 0
	none.OK = &ok
	return []Row{
		Absolute(name, "p50 us, reserve to ready", Quantile(us, 0.5), maxReadyUS),
		Absolute(name, "p90 us, reserve to ready", Quantile(us, 0.9), 0),
		none,
		Absolute(name, "bytes through the connection per transfer", (wire2-wire)/float64(warmup+samples), maxSignalBytes),
		Absolute(name, "us, checksum scan", Quantile(sums, 0.5), 0),
	}, nil
}

// moved returns the bytes that the receiver has read from connections, and copied into its arena.
func (x *loanRun) moved() (wire, copied float64, err error) {
	wire, err = x.into.counter("afterimage_transport_wire_bytes_total", "side", "receiver")
	if err != nil {
		return 0, 0, err
	}
	copied, err = x.into.counter("afterimage_transport_bytes_total", "road", "copy")
	return wire, copied, err
}

// once delivers one object. With check it reads all of it, and returns what that took.
func (x *loanRun) once(ctx context.Context, index, size int, check bool) (us, sum float64, err error) {
	w := parcelWant(size, 0)
	start := time.Now()
	tks, err := x.recv.Grant(ctx, []transport.Want{w})
	if err != nil {
		return 0, 0, err
	}
	if _, err := x.nc.Write(order(index, tks[0].Grant())); err != nil {
		return 0, 0, err
	}
	buf, _, err := tks[0].Wait(ctx)
	us = float64(time.Since(start)) / float64(time.Microsecond)
	if err != nil {
		return 0, 0, err
	}
	defer buf.Release()
	if !buf.Foreign() {
		return 0, 0, errors.New("the object was copied")
	}
	if check {
		start = time.Now()
		_ = xxh3.Hash(buf.Bytes())
		sum = float64(time.Since(start)) / float64(time.Microsecond)
		if _, _, err := embedding.A1.Open(buf.Bytes(), w.Key, w.Contract); err != nil {
			return 0, 0, err
		}
	}
	var ended [1]byte
	if _, err := io.ReadFull(x.nc, ended[:]); err != nil || ended[0] != 0 {
		return 0, 0, fmt.Errorf("the Encoder was not told that its object is there (%w)", err)
	}
	return us, sum, nil
}

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
