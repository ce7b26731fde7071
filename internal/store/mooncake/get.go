// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"fmt"
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
	exact bool   // all of its Wants take this size and no other
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
			all[n].key, all[n].bytes, all[n].exact, all[n].wants = string(w.Key), w.Bytes, w.Exact, all[n].one[:0]
			reads = append(reads, &all[n])
		}
		r := reads[n]
		r.exact = r.exact && w.Exact && w.Bytes == r.bytes
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
