// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"afterimage/internal/arena"
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

// get fills gots in order. What was filled before an error stays filled.
func (cn *conn) get(a *arena.Arena, wants []store.Want, gots []store.Got) error {
	id, err := cn.send(opGet, len(wants), func(b []byte) []byte { return appendWants(b, wants) })
	if err != nil {
		return err
	}
	if h, _, err := cn.reply(opGet, id); err != nil {
		return err
	} else if h.count != len(wants) {
		return fmt.Errorf("%w: %d answers to %d keys", errProtocol, h.count, len(wants))
	}
	for i, w := range wants {
		if gots[i], err = cn.item(a, w); err != nil {
			return err
		}
	}
	return nil
}

// item reads the answer to one Want. The object's bytes go straight into the arena.
func (cn *conn) item(a *arena.Arena, w store.Want) (store.Got, error) {
	cn.extend(0)
	st, size, err := readItem(cn.r, cn.scratch, w.Key)
	switch {
	case err != nil:
		return store.Got{}, err
	case st == statusMiss:
		return store.Got{Err: store.ErrMiss}, nil
	case st == statusRejected:
		return store.Got{Err: fmt.Errorf("%w: object of %d bytes, want %d", store.ErrRejected, size, w.Bytes)}, nil
	case st != statusOK || size > uint64(max(w.Bytes, 0)) || w.Exact && size != uint64(w.Bytes):
		return store.Got{}, fmt.Errorf("%w: item of status %d and %d bytes, want %d", errProtocol, st, size, w.Bytes)
	}
	return cn.object(a, int(size))
}

// object reads n bytes that are next on the connection.
func (cn *conn) object(a *arena.Arena, n int) (store.Got, error) {
	cn.extend(n)
	buf, err := a.Reserve(n)
	if err != nil {
		// The object is on its way already; reading past it keeps the rest of the batch.
		if _, skip := io.CopyN(io.Discard, cn.r, int64(n)); skip != nil {
			return store.Got{}, skip
		}
		return store.Got{Err: fmt.Errorf("%w: no memory for %d bytes: %w", store.ErrRejected, n, err)}, nil
	}
	defer buf.Abort()
	if _, err := io.ReadFull(cn.r, buf.Bytes()); err != nil {
		return store.Got{}, err
	}
	buf.Commit()
	return store.Got{Buf: buf}, nil
}

// put reserves, sends and commits. refused is the Store's answer, with a class.
func (cn *conn) put(key embedding.Key, obj []byte, opts store.PutOptions) (refused, err error) {
	id, err := cn.send(opReserve, 0, func(b []byte) []byte { return appendReserve(b, key, len(obj), opts) })
	if err != nil {
		return nil, err
	}
	if done, refused, err := cn.verdict(opReserve, id); done || err != nil {
		return refused, err
	}
	cn.extend(len(obj))
	if _, err := cn.nc.Write(obj); err != nil {
		return nil, err
	}
	_, refused, err = cn.verdict(opCommit, id)
	return refused, err
}

// verdict reads one answer to a PUT. done says that the call is over.
func (cn *conn) verdict(o op, id uint64) (done bool, refused, err error) {
	h, body, err := cn.reply(o, id)
	switch {
	case err != nil:
		return true, nil, err
	case h.status == statusOK:
		return false, nil, nil
	case h.status == statusExists:
		return true, nil, nil
	case h.status == statusRejected:
		return true, fmt.Errorf("%w: %.512s", store.ErrRejected, body), nil
	}
	return true, nil, fmt.Errorf("%w: status %d", errProtocol, h.status)
}

func appendReserve(b []byte, key embedding.Key, n int, opts store.PutOptions) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b = binary.LittleEndian.AppendUint64(b, uint64(max(opts.TTL, 0)))
	b = binary.LittleEndian.AppendUint16(b, flagSoftPin*uint16(boolByte(opts.SoftPin)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(opts.Tenant)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, 0, 0)
	b = append(b, opts.Tenant...)
	return append(b, key...)
}

func appendWants(b []byte, wants []store.Want) []byte {
	for _, w := range wants {
		b = binary.LittleEndian.AppendUint64(b, uint64(max(w.Bytes, 0)))
		b = append(b, boolByte(w.Exact), 0)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(w.Key)))
		b = append(b, w.Key...)
	}
	return b
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}
