// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"afterimage/internal/arena"
	"afterimage/internal/store"
)

// readBatch fills the buffers of reads, or their errors.
func (c *Client) readBatch(ctx context.Context, reads []*read) {
	l, s, err := c.enter(ctx)
	if err == nil {
		defer c.leave()
		err = c.roomFor()
	}
	if err != nil {
		for _, r := range reads {
			r.err = err // also of those without room: that the Store is away is what counts
		}
		return
	}
	todo, noRoom := split(reads)
	c.missing(ctx, l, noRoom)
	// A lease that expired while the bytes came is worth a second reading, and so is a lost mapping.
	for attempt := 0; len(todo) > 0 && attempt < 2; attempt++ {
		rs, err := c.readOnce(ctx, l, s, todo)
		if err == nil && attempt == 0 && allRefused(rs) && c.lostMapping(ctx, l, s) {
			if l, s = c.current(); l == nil {
				err = c.unavailable(errClosed)
			} else {
				continue
			}
		}
		todo = c.sort(todo, rs, err)
	}
}

// split tells the reads with memory from those without.
func split(reads []*read) (with, without []*read) {
	if !slices.ContainsFunc(reads, func(r *read) bool { return r.err != nil }) {
		return reads, nil
	}
	for _, r := range reads {
		if r.err == nil {
			with = append(with, r)
		} else {
			without = append(without, r)
		}
	}
	return with, without
}

// missing tells, by one exists call, the reads without memory that are misses from those that memory would have helped.
func (c *Client) missing(ctx context.Context, l *link, reads []*read) {
	if len(reads) == 0 {
		return
	}
	keys := make([]string, len(reads))
	for i, r := range reads {
		keys[i] = r.key
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	rs, err := l.read().exist(ctx, keys)
	if err != nil {
		return // they stay rejected
	}
	for i, r := range reads {
		if rs[i].code == codeOK && rs[i].n == 0 {
			r.err = fmt.Errorf("mooncake: key %s: %w", r.key, store.ErrMiss)
		}
	}
}

// sort enters the outcome of one reading and returns the reads whose lease expired.
func (c *Client) sort(reads []*read, rs []result, err error) (again []*read) {
	for i, r := range reads {
		if err != nil {
			r.err = err
			continue
		}
		r.err = c.readError(r, rs[i])
		if rs[i].code == codeLeaseExpired {
			again = append(again, r)
		}
		if r.err == nil {
			c.win.receive(r.buf)
			r.buf.Truncate(int(rs[i].n))
		}
	}
	return again
}

// readError classifies the result of r. A buffer that is too small is refused with the code of a call
// that is wrong altogether.
func (c *Client) readError(r *read, res result) error {
	class := getClass(res.code)
	switch {
	case class == nil && res.n < 1: // Mooncake stores no empty object
		return fmt.Errorf("mooncake: key %s: %w: an object of %d bytes", r.key, store.ErrMiss, res.n)
	case class == nil:
		return nil
	case res.code == codeOtherSize:
		return fmt.Errorf("mooncake: key %s: %w: the object is smaller than %d bytes", r.key, class, r.bytes)
	case res.code == codeBadParams:
		return fmt.Errorf("mooncake: key %s: %w: the object is larger than %d bytes", r.key, class, r.bytes)
	}
	return fmt.Errorf("mooncake: key %s: %w: %v", r.key, class, res.code)
}

// readOnce makes the call: in the short way where that is possible, and known to the server.
func (c *Client) readOnce(ctx context.Context, l *link, s *session, reads []*read) ([]result, error) {
	t := &transfer{fn: fnGet, reply: getReply, value: asI64, class: getClass, l: l, s: s,
		keys: make([]string, len(reads)), bufs: make([]*arena.Buf, len(reads))}
	places := make([]place, len(reads))
	for i, r := range reads {
		t.keys[i], t.bufs[i] = r.key, r.buf
		at, err := c.win.at(r.buf)
		if err != nil {
			return nil, fmt.Errorf("mooncake: %w: %w", store.ErrRejected, err)
		}
		places[i] = at
	}
	if on := l.inline(reads); on != nil {
		t.fn = fnGetInline
		rs, err := c.move(ctx, t, on, encodeGetInline(t.keys, places, s.id))
		if !foreign(err) {
			return rs, err
		}
		l.noInline.Store(true)
		t.fn = fnGet
	}
	return c.move(ctx, t, l.read(), encodeGet(t.keys, places, s.id))
}

// inlineBytes is the most that is read in the short way: beyond, what it saves is little of the whole, and a PUT
// would wait for it.
const inlineBytes = 2 << 20

// inline returns the connection on which reads can go in the short way, or nil.
//
// mooncake_client runs a GET in another of its threads, and has the answer sent by the first, unless it is asked to
// fill several pieces of memory for each object: that it does at once. It saves both hand-overs: a GET of 1 MiB from
// another node takes as long as by Mooncake's own client there, which reads it itself, and 1.2 times as long in the other
// way ("bench resolver --store mooncake"). But it holds up the
// connection, like a PUT, so that it takes one of theirs while none runs: if it meets a storage node that stands
// still, the other reads go on. And the pieces have to be of the object's size to the byte: a link on which they were
// not once (misfit) reads in the other way from there on.
func (l *link) inline(reads []*read) *conn {
	bytes := 0
	for _, r := range reads {
		if bytes += r.bytes; !r.exact || bytes > inlineBytes {
			return nil
		}
	}
	on := l.write()
	if on.running.Load() > 0 || l.noInline.Load() {
		return nil
	}
	return on
}

// foreign says whether the server refused a call because it does not know its function or its arguments.
func foreign(err error) bool {
	var re *rpcError
	return errors.As(err, &re) && (re.code == rpcBadArguments || re.code == rpcUnknownFunction)
}
