// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Frames of coro_rpc, little endian:
//
//	request   u8 magic, u8 version, u8 serializer, u8 kind, u32 seq, u32 function, u32 body, u32 attachment
//	response  u8 magic, u8 version, u8 error, u8 kind, u32 seq, u32 body, u32 attachment
const (
	rpcMagic         = 21
	rpcRequestBytes  = 20
	rpcResponseBytes = 16
	// rpcMaxBody bounds an answer: 13 bytes for each key of the largest batch take far less.
	rpcMaxBody = 4 << 20

	rpcBadArguments    = 4  // the types of the arguments are of another release
	rpcUnknownFunction = 11 // likewise the function
	rpcLongError       = 255
)

// writeTimeout bounds how long a request may wait for a server that does not read.
const writeTimeout = 10 * time.Second

// rpcError is an error of the RPC layer of the server; the call did nothing.
type rpcError struct {
	code byte
	text string
}

func (e *rpcError) Error() string { return fmt.Sprintf("coro_rpc error %d: %s", e.code, e.text) }

// funcID names a member function of mooncake::RealClient on the wire.
func funcID(name string) uint32 { return md5u32("mooncake::RealClient::" + name) }

// reply is what became of a request: a body, or an error.
type reply struct {
	body []byte
	err  error
}

// conn is one connection. Calls are told apart by sequence number: the server answers gets in any
// order, and an answer that nobody waits for any more is dropped, so it can never meet another call.
//
// Whoever waits for an answer reads, one at a time, and hands the others theirs: an answer wakes the goroutine
// that it is for, where a reader of its own would have to be woken first (exists of 4 keys 73 instead of 102 us,
// get of 4 x 16 KiB 131 instead of 171; medians of three runs in turns on two busy cores). So nobody reads while
// nobody waits, and a break is noticed by the next call, but on a connection that is watched.
type conn struct {
	nc     *socket
	broken func(error)
	wg     sync.WaitGroup // the reader of a connection that is watched

	running atomic.Int32 // calls without an answer, also those that nobody waits for

	wmu sync.Mutex // held while a request is written

	reading chan struct{} // holds one element while somebody reads; guards in
	in      inbox

	mu   sync.Mutex // guards the fields below
	seq  uint32
	wait map[uint32]chan reply // buffered, so that no reader waits
	dead error
}

// dialConn connects. broken is called once, when the connection fails, before any call ends with it; it must not
// use the connection.
func dialConn(ctx context.Context, addr string, broken func(error)) (*conn, error) {
	nc, err := dialSocket(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc, broken: broken, reading: make(chan struct{}, 1), in: newInbox(nc), wait: map[uint32]chan reply{}}, nil
}

// watch reads from here on until the connection fails. It is called before all else.
func (c *conn) watch() error {
	c.reading <- struct{}{}
	if err := c.nc.limit(unix.SO_RCVTIMEO, 0); err != nil {
		return err
	}
	c.wg.Go(func() {
		for {
			if err := c.readOne(); err != nil {
				c.fail(err)
				return
			}
		}
	})
	return nil
}

// close ends the connection and all calls on it, and waits for the reader.
func (c *conn) close() {
	c.fail(net.ErrClosed)
	c.wg.Wait()
}

// fail ends all calls with err.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == nil {
		c.dead = err
		_ = c.nc.Close() // the first error counts
		c.broken(err)
	}
	for seq, ch := range c.wait {
		delete(c.wait, seq)
		c.running.Add(-1)
		ch <- reply{err: c.dead}
	}
}

// readOne reads one answer and hands it to whom it is for. The caller holds reading.
func (c *conn) readOne() error {
	seq, rep, err := c.in.next()
	if err != nil {
		return err
	}
	c.mu.Lock()
	ch := c.wait[seq]
	delete(c.wait, seq)
	c.mu.Unlock()
	if ch != nil {
		c.running.Add(-1)
		ch <- rep
	}
	return nil
}

// await returns the answer that ch gets, or why ctx ended before.
func (c *conn) await(ctx context.Context, ch <-chan reply) (reply, error) {
	select {
	case rep := <-ch:
		return rep, nil
	case c.reading <- struct{}{}:
		return c.readUntil(ctx, ch)
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

// readUntil reads until ch has its answer or ctx ends, and lets others read.
func (c *conn) readUntil(ctx context.Context, ch <-chan reply) (reply, error) {
	defer func() { <-c.reading }()
	for {
		select {
		case rep := <-ch:
			return rep, nil
		default:
		}
		if ctx.Err() != nil {
			return reply{}, context.Cause(ctx)
		}
		if err := c.readOne(); err != nil && !errors.Is(err, unix.EAGAIN) {
			c.fail(err) // which answers ch
		}
	}
}

// send sends one request and returns where its answer will come. The channel always gets exactly one
// reply: at the latest when the connection ends.
func (c *conn) send(function uint32, body []byte) (<-chan reply, error) {
	ch := make(chan reply, 1)
	c.mu.Lock()
	if c.dead != nil {
		defer c.mu.Unlock()
		return nil, c.dead
	}
	c.seq++ // wraps after 4 billion calls, when the first is long answered
	seq := c.seq
	c.wait[seq] = ch
	c.running.Add(1)
	c.mu.Unlock()

	m := make([]byte, rpcRequestBytes, rpcRequestBytes+len(body))
	m[0] = rpcMagic
	binary.LittleEndian.PutUint32(m[4:], seq)
	binary.LittleEndian.PutUint32(m[8:], function)
	binary.LittleEndian.PutUint32(m[12:], uint32(len(body)))
	m = append(m, body...)

	c.wmu.Lock()
	_, err := c.nc.Write(m)
	c.wmu.Unlock()
	if err != nil {
		c.fail(err) // a part of the request may be out: nothing can follow it
	}
	return ch, nil
}

// call sends one request and waits for its answer until ctx ends. It is for calls that touch no
// memory of ours, which can be forgotten.
func (c *conn) call(ctx context.Context, function uint32, body []byte) ([]byte, error) {
	ch, err := c.send(function, body)
	if err != nil {
		return nil, err
	}
	rep, err := c.await(ctx, ch)
	if err != nil {
		return nil, err
	}
	return rep.body, rep.err
}
