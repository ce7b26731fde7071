// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/fdpass"
	"afterimage/internal/quick"
	"afterimage/internal/store"
)

// conn is the client's end of a connection. Its methods run one call each; an error means that the
// connection must be closed.
type conn struct {
	c        *Client
	nc       net.Conn
	limit    *limit
	link     *link    // that it joined as a lane; nil for a lane that streams
	lane     uint64   // its number there
	request  uint64   // the last one sent
	carried  []uint64 // returns in front of it
	src      *source
	r        *bufio.Reader
	in       frames
	out      []byte
	scratch  []byte // heads and keys of GET items
	answered bool   // a reply to the call in progress has begun
}

// newConn returns a connection whose answers poll looks for; the zero value where what comes is no answer, and may take
// for ever.
func newConn(c *Client, nc net.Conn, poll quick.Poll) *conn {
	cn := &conn{c: c, nc: nc, limit: c.watch.add(nc), src: &source{nc: nc, quick: quick.New(nc, poll)}, scratch: make([]byte, maxKeyBytes)}
	cn.r = bufio.NewReaderSize(cn.src, readAhead)
	cn.in.r = cn.r
	return cn
}

// bytesPerNS is what a Store copies and sums at least, in the caches (8 to 13 bytes on EPYC and Xeon cores).
const bytesPerNS = 8

// extend gives the next step, of n bytes, its time.
func (cn *conn) extend(n int) {
	cn.limit.within(cn.c.cfg.IOTimeout + transferTime(n))
	if q := cn.src.quick; q != nil {
		q.Expect(time.Duration(n / bytesPerNS))
	}
}

// close ends the connection, which is watched no more.
func (cn *conn) close() {
	cn.nc.Close()
	cn.limit.end()
}

// noHead keeps the place of a head until the length of its body is known.
var noHead [headBytes]byte

// send starts a request: count items, with fill appending its body.
func (cn *conn) send(o op, count int, fill func([]byte) []byte) (uint64, error) {
	b, id := cn.frame(cn.message(), o, count, fill)
	return id, cn.flush(b)
}

// message begins what is sent at once, with the returns that are due.
func (cn *conn) message() []byte {
	if cn.link == nil {
		return cn.out[:0]
	}
	cn.carried = cn.link.carry(cn.carried)
	return appendCounted(cn.out[:0], opReturn, cn.carried, 1)
}

// frame adds a request to a message.
func (cn *conn) frame(b []byte, o op, count int, fill func([]byte) []byte) (_ []byte, id uint64) {
	id = cn.c.nextID.Add(1)
	cn.request = id
	at := len(b)
	b = fill(append(b, noHead[:]...))
	head{op: o, count: count, request: id, body: len(b) - at - headBytes}.append(b[at:at])
	return b, id
}

// flush sends a message.
func (cn *conn) flush(b []byte) error {
	if cn.out = b; cap(b) > keepBytes {
		cn.out = nil
	}
	cn.extend(len(b))
	return tell(cn.nc, cn.src.quick, b)
}

// reply reads the head and body of the answer to request id.
func (cn *conn) reply(o op, id uint64) (head, []byte, error) {
	h, body, err := cn.in.next()
	switch {
	case err != nil:
		return h, nil, err
	case h.request != id || h.op != o:
		return h, nil, fmt.Errorf("%w: reply to request %d, op %d; want %d, op %d", errProtocol, h.request, h.op, id, o)
	case h.status == statusMalformed:
		return h, nil, fmt.Errorf("%w: the Store says: %.512s", errProtocol, body)
	}
	cn.answered, cn.carried = true, cn.carried[:0]
	return h, body, nil
}

// hello introduces this process, and sends files along.
func (cn *conn) hello(a ask, files []*os.File) (greeting, error) {
	id := cn.c.nextID.Add(1)
	cn.extend(askBytes)
	b := a.append(head{op: opHello, request: id, body: askBytes}.append(nil))
	if err := fdpass.Write(cn.nc, b, files...); err != nil {
		return greeting{}, err
	}
	_, body, err := cn.reply(opHello, id)
	if err != nil {
		return greeting{}, err
	}
	return parseGreeting(body)
}

// exists fills states, which are all absent before.
func (cn *conn) exists(keys []embedding.Key, states []store.State) error {
	id, err := cn.send(opExists, len(keys), func(b []byte) []byte { return appendKeys(b, keys) })
	if err != nil {
		return err
	}
	_, body, err := cn.reply(opExists, id)
	if err != nil {
		return err
	}
	c := cursor{b: body}
	for i := range states {
		if n := int64(c.u64()); n >= 0 {
			states[i] = store.State{Present: true, Bytes: n}
		}
	}
	return c.end()
}

func (cn *conn) remove(keys []embedding.Key) error {
	id, err := cn.send(opRemove, len(keys), func(b []byte) []byte { return appendKeys(b, keys) })
	if err != nil {
		return err
	}
	_, _, err = cn.reply(opRemove, id)
	return err
}
