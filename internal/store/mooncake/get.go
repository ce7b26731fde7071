// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

const (
	// maxBatchKeys and maxBatchBytes bound one call. All objects of a call share one lease, so a call has
	// to end well within it: 256 MiB took 0.25 s over TCP loopback.
	maxBatchKeys  = 255
	maxBatchBytes = 256 << 20
	// maxKeyBytes is what the Store of this host takes too.
	maxKeyBytes = 4096
)

// read is one distinct object of a Get.
type read struct {
	key   string
	bytes int    // the most that any of its Wants allows
	wants []int  // indexes of the Wants
	one   [1]int // memory of wants; mostly it is one
	buf   *arena.Buf
	err   error
}

// Get implements store.Store. Objects that are asked for twice are read once.
func (c *Client) Get(ctx context.Context, wants []store.Want) []store.Got {
	start := time.Now()
	gots := make([]store.Got, len(wants))
	reads := c.plan(wants, gots)
	for len(reads) > 0 {
		n := c.reserve(reads)
		c.readBatch(ctx, reads[:n])
		for _, r := range reads[:n] {
			deliver(r, wants, gots)
		}
		reads = reads[n:]
	}
	for _, g := range gots {
		c.count.get.item(g.Err, g.Buf)
	}
	c.count.get.call(start)
	return gots
}

// plan checks wants and groups them by key: of a key that a batch names twice, Mooncake fills only the
// last buffer and reports success for both. What plan refuses it answers in gots.
func (c *Client) plan(wants []store.Want, gots []store.Got) []*read {
	reads := make([]*read, 0, len(wants))
	all := make([]read, len(wants)) // together, which takes less time than one by one
	var keys distinct
	for i, w := range wants {
		if err := checkKey(w.Key); err != nil {
			gots[i].Err = err
			continue
		}
		if w.Bytes < 1 {
			gots[i].Err = fmt.Errorf("mooncake: key %s: %w: at most %d bytes wanted", w.Key, store.ErrRejected, w.Bytes)
			continue
		}
		if c.wary.has(string(w.Key)) || c.doomed.has(string(w.Key)) {
			gots[i].Err = fmt.Errorf("mooncake: key %s: %w: not trusted for the moment", w.Key, store.ErrMiss)
			continue
		}
		n, first := keys.number(w.Key)
		if first {
			all[n].key, all[n].wants = string(w.Key), all[n].one[:0]
			reads = append(reads, &all[n])
		}
		r := reads[n]
		r.bytes = max(r.bytes, w.Bytes)
		r.wants = append(r.wants, i)
	}
	return reads
}

// reserve takes memory for the first reads and returns how many make one call, at least one. One that
// finds no room fails alone.
func (c *Client) reserve(reads []*read) int {
	bytes := 0
	for i, r := range reads {
		if i > 0 && (i == maxBatchKeys || r.bytes > maxBatchBytes-bytes) {
			return i
		}
		bytes += min(r.bytes, maxBatchBytes)
		var err error
		if r.buf, err = c.arena.Reserve(r.bytes); err != nil {
			r.err = fmt.Errorf("mooncake: key %s: %w: %w", r.key, store.ErrRejected, err)
		}
	}
	return len(reads)
}

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
	case res.code == codeBadParams:
		return fmt.Errorf("mooncake: key %s: %w: the object is larger than %d bytes", r.key, class, r.bytes)
	}
	return fmt.Errorf("mooncake: key %s: %w: %v", r.key, class, res.code)
}

// readOnce makes the call.
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
	return c.move(ctx, t, l.read(), encodeGet(t.keys, places, s.id))
}

// deliver answers the Wants of r and gives its buffer up.
func deliver(r *read, wants []store.Want, gots []store.Got) {
	if r.buf == nil {
		for _, i := range r.wants {
			gots[i].Err = r.err
		}
		return
	}
	// Each Want gets a reference of its own; the first one was for the reading.
	defer r.buf.Release()
	if r.err == nil {
		r.buf.Commit()
	}
	for _, i := range r.wants {
		n := r.buf.Len()
		switch {
		case r.err != nil:
			gots[i].Err = r.err
		case n > wants[i].Bytes || wants[i].Exact && n != wants[i].Bytes:
			gots[i].Err = fmt.Errorf("mooncake: key %s: %w: object of %d bytes, wanted %d", r.key, store.ErrRejected, n, wants[i].Bytes)
		default:
			gots[i].Buf = r.buf.Retain()
		}
	}
}

// checkKey refuses keys that Mooncake does not take, or that only a mistake makes.
func checkKey(k embedding.Key) error {
	if len(k) == 0 || len(k) > maxKeyBytes {
		return fmt.Errorf("mooncake: %w: key of %d bytes, want 1 to %d", store.ErrRejected, len(k), maxKeyBytes)
	}
	return nil
}
