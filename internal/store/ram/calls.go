// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"afterimage/internal/embedding"
)

// exists answers with sizes. It takes the lock once per key: a batch of it is a few microseconds, and
// calls of others come in between.
func (s *session) exists(h head, body []byte) error {
	c := cursor{b: body}
	b := head{op: opExists, request: h.request, count: h.count, body: 8 * h.count}.append(s.out[:0])
	for range h.count {
		n, ok := s.srv.shelf.size(c.key(int(c.u16())))
		if !ok {
			n = -1
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	if err := c.end(); err != nil {
		return err
	}
	return s.write(b)
}

// remove parses the whole batch first, so that a malformed one removes nothing.
func (s *session) remove(h head, body []byte) error {
	keys := make([]embedding.Key, h.count)
	c := cursor{b: body}
	for i := range keys {
		keys[i] = c.key(int(c.u16()))
	}
	if err := c.end(); err != nil {
		return err
	}
	for _, k := range keys {
		s.srv.shelf.remove(k)
	}
	return s.write(head{op: opRemove, request: h.request, count: h.count}.append(s.out[:0]))
}

// get answers with all objects in one gathered write, straight from the arena: no byte of an object
// is copied on this side. The objects are held until the kernel has taken them.
func (s *session) get(h head, body []byte) error {
	held, out, total, err := s.collect(h, body)
	defer func() {
		for _, o := range held {
			s.srv.shelf.done(o)
		}
	}()
	if err != nil {
		return err
	}
	s.nc.SetWriteDeadline(time.Now().Add(s.srv.cfg.IOTimeout + transferTime(total)))
	_, err = out.WriteTo(s.nc)
	return err
}

// collect finds the objects of a GET and lines up the reply. What it returns in held must be given
// back, with an error too.
func (s *session) collect(h head, body []byte) (held []*object, out net.Buffers, total int, err error) {
	c := cursor{b: body}
	b := head{op: opGet, request: h.request, count: h.count}.append(s.out[:0])
	from := 0 // what of b is not in out yet
	for range h.count {
		most, exact := c.u64(), c.u8()
		c.u8()
		key := c.key(int(c.u16()))
		if c.bad {
			break
		}
		o, n, st := s.srv.shelf.read(key, most, exact != 0)
		b = appendItem(b, st, key, n)
		if o == nil {
			continue
		}
		held = append(held, o)
		total += n
		// Growing b moves it, but what out holds stays valid and is not written again.
		out = append(out, b[from:len(b):len(b)], o.buf.Bytes())
		from = len(b)
	}
	if from < len(b) {
		out = append(out, b[from:])
	}
	// The memory of heads and keys serves the next reply, unless a long batch made it grow.
	if s.out = b[:0]; cap(b) > keepBytes {
		s.out = nil
	}
	return held, out, total, c.end()
}

// put takes one object: room first, then its bytes, then commit. Whatever ends it early gives the
// room back.
func (s *session) put(h head, body []byte) error {
	key, size, err := parseReserve(body)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(s.srv.cfg.IOTimeout + transferTime(int(min(size, s.srv.cfg.MaxBytes))))
	u, err := s.srv.shelf.reserve(key, size, deadline)
	if err != nil {
		return s.text(h, statusRejected, err)
	}
	reply := head{op: opReserve, request: h.request}
	if u == nil {
		reply.status = statusExists
		return s.write(reply.append(s.out[:0]))
	}
	if err := s.write(reply.append(s.out[:0])); err != nil {
		s.srv.shelf.abort(u)
		return err
	}
	s.nc.SetReadDeadline(deadline)
	if _, err := io.ReadFull(s.r, u.buf.Bytes()); err != nil {
		s.srv.shelf.abort(u)
		return fmt.Errorf("upload cut: %w", err)
	}
	reply.op = opCommit
	stored, err := s.srv.shelf.commit(u)
	if err != nil {
		return s.text(reply, statusRejected, err)
	}
	if !stored {
		reply.status = statusExists
	}
	return s.write(reply.append(s.out[:0]))
}

// parseReserve reads the body of reserve. TTL, soft pin and tenant are hints that Capabilities does
// not promise; they are read past.
func parseReserve(body []byte) (embedding.Key, int64, error) {
	c := cursor{b: body}
	n := c.u64()
	c.u64() // TTL
	c.u16() // flags
	tenant, key := int(c.u16()), int(c.u16())
	c.u16()
	if tenant > maxTenantBytes {
		c.bad = true
	}
	c.bytes(tenant)
	k := c.key(key)
	return k, int64(min(n, math.MaxInt64)), c.end()
}
