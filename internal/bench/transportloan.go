// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
	"afterimage/internal/transport"
)

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
