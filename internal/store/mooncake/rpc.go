// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
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
type conn struct {
	nc net.Conn
	wg sync.WaitGroup // the reader

	wmu sync.Mutex // held while a request is written

	mu   sync.Mutex // guards the fields below
	seq  uint32
	wait map[uint32]chan reply // buffered, so that nobody waits for a reader
	dead error
}

// dialConn connects. broken is called once, from a goroutine of its own, when the connection fails.
func dialConn(ctx context.Context, addr string, broken func(error)) (*conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &conn{nc: nc, wait: map[uint32]chan reply{}}
	c.wg.Go(func() {
		err := c.read()
		c.fail(err)
		broken(err)
	})
	return c, nil
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
	}
	for seq, ch := range c.wait {
		delete(c.wait, seq)
		ch <- reply{err: c.dead}
	}
}

func (c *conn) read() error {
	r := bufio.NewReaderSize(c.nc, 32<<10)
	for {
		seq, rep, err := readReply(r)
		if err != nil {
			return err
		}
		c.mu.Lock()
		ch := c.wait[seq]
		delete(c.wait, seq)
		c.mu.Unlock()
		if ch != nil {
			ch <- rep
		}
	}
}

// readReply reads one response. The error is of the stream; that of the call is in the reply.
func readReply(r io.Reader) (seq uint32, rep reply, err error) {
	var h [rpcResponseBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, reply{}, err
	}
	seq = binary.LittleEndian.Uint32(h[4:])
	body, attached := binary.LittleEndian.Uint32(h[8:]), binary.LittleEndian.Uint32(h[12:])
	if h[0] != rpcMagic || body > rpcMaxBody || attached > rpcMaxBody {
		return 0, reply{}, fmt.Errorf("mooncake: response head % x is not one of coro_rpc, or states over %d bytes", h, rpcMaxBody)
	}
	b := make([]byte, body+attached)
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, reply{}, err
	}
	b = b[:body] // this protocol attaches nothing; what is there is skipped
	if h[2] == 0 {
		return seq, reply{body: b}, nil
	}
	return seq, reply{err: &rpcError{h[2], errorText(h[2], b)}}, nil
}

// errorText reads the text of an error, which only helps people.
func errorText(code byte, b []byte) string {
	if code == rpcLongError {
		return fmt.Sprintf("%q", b)
	}
	d := newDecoder(b, tStr)
	text := d.str()
	if d.err != nil {
		return fmt.Sprintf("%q", b)
	}
	return text
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
	c.mu.Unlock()

	m := make([]byte, rpcRequestBytes, rpcRequestBytes+len(body))
	m[0] = rpcMagic
	binary.LittleEndian.PutUint32(m[4:], seq)
	binary.LittleEndian.PutUint32(m[8:], function)
	binary.LittleEndian.PutUint32(m[12:], uint32(len(body)))
	m = append(m, body...)

	c.wmu.Lock()
	err := c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		_, err = c.nc.Write(m)
	}
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
	select {
	case rep := <-ch:
		return rep.body, rep.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
