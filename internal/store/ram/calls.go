// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
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
	if err := s.wishList(h, body); err != nil {
		return err
	}
	s.offers = s.offers[:0]
	defer s.endReplies()
	for _, w := range s.wishes {
		o, n, st := s.srv.shelf.read(w.key, w.most, w.exact)
		s.offers = append(s.offers, offer{st: st, n: n, o: o})
	}
	b := head{op: opGet, request: h.request, count: h.count}.append(s.out[:0])
	from, total := 0, 0 // what of b is not in out yet; bytes of objects
	var out net.Buffers
	for i, f := range s.offers {
		b = appendItem(b, f.st, s.wishes[i].key, f.n)
		if f.o == nil {
			continue
		}
		total += f.n
		// Growing b moves it, but what out holds stays valid and is not written again.
		out = append(out, b[from:len(b):len(b)], f.o.buf.Bytes())
		from = len(b)
	}
	if from < len(b) {
		out = append(out, b[from:])
	}
	s.keep(b)
	return s.writeAll(out, total)
}

// writeAll sends a reply with total bytes of objects.
func (s *session) writeAll(out net.Buffers, total int) (err error) {
	s.limit.within(s.srv.cfg.IOTimeout + transferTime(total))
	if len(out) == 1 {
		err = tell(s.nc, s.src.quick, out[0])
	} else {
		_, err = out.WriteTo(s.nc)
	}
	return cmp.Or(err, s.limit.met())
}

// wishList reads the body of get and lend.
func (s *session) wishList(h head, body []byte) error {
	c := cursor{b: body}
	s.wishes = s.wishes[:0]
	for range h.count {
		w := wish{most: c.u64(), exact: c.u8() != 0}
		c.u8()
		w.key = c.key(int(c.u16()))
		s.wishes = append(s.wishes, w)
	}
	return c.end()
}

// lineUp makes the reply to lend: all offers, then the objects that are not lent.
func (s *session) lineUp(h head) (out net.Buffers, total int) {
	b := head{op: opLend, request: h.request, count: h.count, body: offerBytes * h.count}.append(s.out[:0])
	for _, f := range s.offers {
		st, off, id := f.st, uint64(0), uint64(0)
		if f.loan != nil {
			st, off, id = statusLent, uint64(f.o.buf.Offset()), f.loan.id
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(st))
		b = binary.LittleEndian.AppendUint64(b, uint64(f.n))
		b = binary.LittleEndian.AppendUint64(b, off)
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	s.keep(b)
	out = append(out, b)
	for _, f := range s.offers {
		if f.o != nil && f.loan == nil {
			out = append(out, f.o.buf.Bytes())
			total += f.n
		}
	}
	return out, total
}

// endReplies lets go of the objects that were sent; loans stay.
func (s *session) endReplies() {
	for _, f := range s.offers {
		if f.o != nil && f.loan == nil {
			s.srv.shelf.done(f.o)
		}
	}
	clear(s.offers) // an idle lane keeps no object from the garbage collector
	clear(s.wishes)
}

// keep takes the memory of a reply for the next one, unless a long batch made it grow.
func (s *session) keep(b []byte) {
	if s.out = b[:0]; cap(b) > keepBytes {
		s.out = nil
	}
}

// put takes one object over the connection: room first, then its bytes, then commit. Whatever ends it
// early gives the room back.
func (s *session) put(h head, body []byte) error {
	r, err := parseReserve(body)
	if err != nil {
		return err
	}
	deadline := s.putDeadline(r.bytes)
	u, err := s.srv.shelf.put(r.key, r.bytes, r.opts, deadline)
	if err != nil {
		return s.text(h, statusRejected, err)
	}
	reply := head{op: opReserve, request: h.request}
	if u == nil {
		return s.finish(reply, nil, nil)
	}
	if err := s.write(reply.append(s.out[:0])); err != nil {
		s.srv.shelf.abort(u)
		return err
	}
	s.limit.within(time.Until(deadline))
	_, err = io.ReadFull(s.r, u.buf.Bytes())
	if err = cmp.Or(err, s.limit.met()); err != nil {
		s.srv.shelf.abort(u)
		return fmt.Errorf("upload cut: %w", err)
	}
	reply.op = opCommit
	if !s.srv.copies {
		err = verify(u.buf.Bytes())
	}
	return s.finish(reply, u, err)
}

// finish commits an upload that is sound, and answers; u is nil when the object was there.
func (s *session) finish(reply head, u *upload, unsound error) error {
	stored := false
	if u != nil {
		if unsound != nil {
			s.srv.shelf.abort(u)
			return s.text(reply, statusRejected, unsound)
		}
		var err error
		if stored, err = s.srv.shelf.commit(u); err != nil {
			return s.text(reply, statusRejected, err)
		}
	}
	if !stored {
		reply.status = statusExists
	}
	return s.write(reply.append(s.out[:0]))
}

func (s *session) putDeadline(n int64) time.Time {
	return time.Now().Add(s.srv.cfg.IOTimeout + transferTime(int(min(n, s.srv.cfg.MaxBytes))))
}

// reservation is the body of reserve.
type reservation struct {
	key   embedding.Key
	bytes int64
	opts  store.PutOptions
}

func parseReserve(body []byte) (reservation, error) {
	c := cursor{b: body}
	r := reservation{bytes: int64(min(c.u64(), math.MaxInt64))}
	r.opts.TTL = time.Duration(min(c.u64(), math.MaxInt64))
	r.opts.SoftPin = c.u16()&flagSoftPin != 0
	tenant, key := int(c.u16()), int(c.u16())
	c.u16()
	if tenant > maxTenantBytes {
		c.bad = true
	}
	r.opts.Tenant = string(c.bytes(tenant))
	r.key = c.key(key)
	return r, c.end()
}
