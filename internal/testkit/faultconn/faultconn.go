// SPDX-License-Identifier: Apache-2.0

// Package faultconn makes connections fail on purpose, the same way every time: delayed, cut, short,
// corrupted or stalled at a byte offset.
//
// A Conn wraps any net.Conn. Its faults are given per direction as offsets into the stream, so that a
// test can put a fault into the middle of a header or a body; a Plan drawn from a seed puts one
// anywhere. Deadlines and Close are those of the wrapped connection.
package faultconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// ErrCut is what the side whose call hits a cut gets; the peer sees the end of the stream.
var ErrCut = errors.New("faultconn: connection cut")

// Faults are those of one direction. Offsets count bytes since the connection began and must be
// positive; the zero value is a sound direction.
type Faults struct {
	Delay      time.Duration // before each call
	Chunk      int           // calls move 1 to Chunk bytes at a time
	ShortAfter int64         // the Write that reaches this offset stops there with io.ErrShortWrite
	CutAfter   int64         // the connection closes at this offset
	StallAfter int64         // bytes from this offset on vanish without an error
	CorruptAt  int64         // one bit of the byte before this offset is flipped
}

// Plan is what befalls one connection.
type Plan struct {
	Seed        uint64 // of chunk sizes and flipped bits
	Read, Write Faults
}

// String names the plan in a failing test.
func (p Plan) String() string {
	return fmt.Sprintf("seed %d, read %+v, write %+v", p.Seed, p.Read, p.Write)
}

// Random returns a plan with one fault of its written direction somewhere in the first span bytes.
func Random(seed uint64, span int64) Plan {
	r := rand.New(rand.NewPCG(seed, 1))
	at := 1 + r.Int64N(span)
	p := Plan{Seed: seed, Write: Faults{Chunk: 1 + r.IntN(1000)}}
	switch r.IntN(5) {
	case 0:
		p.Write.ShortAfter = at
	case 1:
		p.Write.CutAfter = at
	case 2:
		p.Write.StallAfter = at
	case 3:
		p.Write.CorruptAt = at
	case 4:
		p.Write.Delay = time.Duration(r.IntN(20)) * time.Millisecond
	}
	return p
}

// Conn is a faulty connection. Each direction may be used by one goroutine at a time, as the wrapped
// connection's may.
type Conn struct {
	net.Conn
	read, write half
}

// Wrap returns nc with the faults of p.
func Wrap(nc net.Conn, p Plan) *Conn {
	return &Conn{
		Conn:  nc,
		read:  half{Faults: p.Read, rng: rand.New(rand.NewPCG(p.Seed, 2))},
		write: half{Faults: p.Write, rng: rand.New(rand.NewPCG(p.Seed, 3))},
	}
}

// half is one direction.
type half struct {
	Faults
	mu  sync.Mutex // guards the fields below
	rng *rand.Rand
	off int64 // bytes that passed
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	h := &c.read
	time.Sleep(h.Delay)
	for {
		if h.at(h.CutAfter) {
			return 0, c.cut()
		}
		n, err := c.Conn.Read(p[:h.room(len(p))])
		stalled := h.at(h.StallAfter)
		h.pass(p[:n])
		if !stalled || err != nil {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	h := &c.write
	time.Sleep(h.Delay)
	done := 0
	for done < len(p) {
		switch {
		case h.at(h.CutAfter):
			return done, c.cut()
		case h.at(h.ShortAfter):
			return done, io.ErrShortWrite
		case h.at(h.StallAfter):
			return len(p), nil
		}
		part := append([]byte(nil), p[done:done+h.room(len(p)-done)]...) // the caller's bytes stay as they are
		h.pass(part)
		n, err := c.Conn.Write(part)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (c *Conn) cut() error {
	c.Conn.Close()
	return ErrCut
}

// at says whether the stream has come to offset, where 0 is never.
func (h *half) at(offset int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return offset > 0 && h.off >= offset
}

// room returns how many of n bytes may pass before the next chunk or fault ends.
func (h *half) room(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Chunk > 0 {
		n = min(n, 1+h.rng.IntN(h.Chunk))
	}
	for _, offset := range []int64{h.ShortAfter, h.CutAfter, h.StallAfter} {
		if left := offset - h.off; left > 0 {
			n = int(min(int64(n), left))
		}
	}
	return n
}

// pass counts p, and corrupts it where it is due.
func (h *half) pass(p []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.CorruptAt - 1 - h.off; h.CorruptAt > 0 && i >= 0 && i < int64(len(p)) {
		p[i] ^= 1 << h.rng.IntN(8)
	}
	h.off += int64(len(p))
}

// Dialer returns a dial function whose n-th connection (from 0) has the faults of plan(n). It has the
// form that net.Dialer.DialContext has.
func Dialer(dial DialFunc, plan func(n int) Plan) DialFunc {
	var mu sync.Mutex
	count := 0
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		count++
		return Wrap(nc, plan(count-1)), nil
	}
}

// DialFunc opens a connection.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Pipe is a listener without a network: Dial and Accept meet in memory. It suits testing/synctest,
// which real sockets do not.
type Pipe struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewPipe returns an open Pipe.
func NewPipe() *Pipe {
	return &Pipe{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Dial connects, whatever the address.
func (p *Pipe) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.done:
		return nil, fmt.Errorf("faultconn: pipe: %w", net.ErrClosed)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case nc := <-p.conns:
		return nc, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr implements net.Listener.
func (p *Pipe) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
