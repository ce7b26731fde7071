// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"encoding/binary"
	"fmt"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

var _ store.Batcher = (*Client)(nil)

// maxPuts is how many PUTs are in one message. The Store answers each before it reads the next, so their
// answers have to fit the socket's buffer.
const maxPuts = 64

// Put implements store.Store. It is rejected, before any byte of buf is copied, when the Store has no
// room.
func (c *Client) Put(ctx context.Context, key embedding.Key, buf *arena.Buf, opts store.PutOptions) error {
	return c.PutAll(ctx, []store.Putting{{Key: key, Buf: buf, Opts: opts}})[0]
}

// PutAll implements store.Batcher: objects that the Store can copy out of this process's memory are offered
// in one message.
func (c *Client) PutAll(ctx context.Context, puts []store.Putting) []error {
	errs := make([]error, len(puts))
	sound := make([]int, 0, len(puts))
	for i, p := range puts {
		if errs[i] = checkPut(p); errs[i] == nil {
			sound = append(sound, i)
		}
	}
	for len(sound) > 0 {
		part, done := sound[:min(len(sound), maxPuts)], 0
		err := c.call(ctx, c.writes, func(cn *conn) (err error) {
			done, err = cn.putAll(puts, part, errs)
			return err
		})
		for _, i := range part[done:] {
			errs[i] = err
		}
		sound = sound[len(part):]
	}
	return errs
}

func checkPut(p store.Putting) error {
	if err := checkKey(p.Key); err != nil {
		return fmt.Errorf("%w: %w", store.ErrRejected, err)
	}
	if n := len(p.Opts.Tenant); n > maxTenantBytes {
		return fmt.Errorf("%w: tenant of %d bytes, limit %d", store.ErrRejected, n, maxTenantBytes)
	}
	return nil
}

// putAll stores the puts with the indexes part, and says how many of them were answered, in errs.
func (cn *conn) putAll(puts []store.Putting, part []int, errs []error) (done int, err error) {
	for done < len(part) {
		n := 0
		for cn.offers(puts, part, done+n) {
			n++
		}
		if n > 0 {
			n, err = cn.offer(puts, part[done:done+n], errs)
		} else if n, err = 1, cn.putOne(puts[part[done]], &errs[part[done]]); err != nil {
			n = 0
		}
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// offers says whether the Store can copy the object of part[at] itself.
func (cn *conn) offers(puts []store.Putting, part []int, at int) bool {
	return at < len(part) && cn.link != nil && cn.link.shown && puts[part[at]].Buf.In(cn.c.cfg.Arena)
}

// putOne sends an object over the connection.
func (cn *conn) putOne(p store.Putting, refused *error) (err error) {
	*refused, err = cn.put(p.Key, p.Buf.Bytes(), p.Opts)
	return err
}

// offer does PUTs by loan: the Store copies out of this process's memory before it answers.
func (cn *conn) offer(puts []store.Putting, part []int, errs []error) (done int, err error) {
	b, ids := cn.message(), make([]uint64, len(part))
	for n, i := range part {
		p := puts[i]
		b, ids[n] = cn.frame(b, opTake, 0, func(b []byte) []byte {
			return appendReserve(binary.LittleEndian.AppendUint64(b, uint64(p.Buf.Offset())), p.Key, p.Buf.Len(), p.Opts)
		})
	}
	if err := cn.flush(b); err != nil {
		return 0, err
	}
	for n, i := range part {
		cn.extend(puts[i].Buf.Len())
		if _, errs[i], err = cn.verdict(opTake, ids[n]); err != nil {
			return n, err
		}
	}
	return len(part), nil
}
