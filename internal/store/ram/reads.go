// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"fmt"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Exists implements store.Store. Where the Store's index and sketch tell of all keys, it is not asked.
func (c *Client) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	states := make([]store.State, len(keys))
	if ctx.Err() == nil && (c.NoneStored(keys) || c.sizes(keys, states)) {
		return states, nil
	}
	for from := 0; from < len(keys); from += maxBatch {
		to := min(from+maxBatch, len(keys))
		err := c.call(ctx, c.reads, func(cn *conn) error {
			return cn.exists(keys[from:to], states[from:to])
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

// sizes fills states without a call, all or nothing.
func (c *Client) sizes(keys []embedding.Key, states []store.State) bool {
	l := c.link.Load()
	return l != nil && l.sizes(keys, states)
}

// NoneStored implements store.Excluder: the Store's sketch says so.
func (c *Client) NoneStored(keys []embedding.Key) bool {
	l := c.link.Load()
	if l == nil || len(keys) == 0 || !l.noneStored(keys) {
		return false
	}
	c.skipped.Add(uint64(len(keys)))
	return true
}

// Get implements store.Store. Where the Store can lend, an object stays where it is and the Buf is
// foreign; as far as the Store's index and sketch tell of the keys, it is not asked. Else room in the
// arena is taken when an object's size is known and before its bytes are read; an object for which there
// is none is rejected.
func (c *Client) Get(ctx context.Context, wants []store.Want) []store.Got {
	gots := make([]store.Got, len(wants))
	for from := 0; from < len(wants); from += maxBatch {
		to := min(from+maxBatch, len(wants))
		c.getBatch(ctx, wants[from:to], gots[from:to])
	}
	return gots
}

func (c *Client) getBatch(ctx context.Context, wants []store.Want, gots []store.Got) {
	refuse := func(err error) {
		for i := range gots {
			if gots[i].Buf == nil && gots[i].Err == nil {
				gots[i].Err = err
			}
		}
	}
	if c.cfg.Arena == nil {
		refuse(fmt.Errorf("%w: this client has no arena to read into", store.ErrRejected))
		return
	}
	for _, w := range wants {
		if err := checkKey(w.Key); err != nil {
			refuse(fmt.Errorf("%w: %w", store.ErrRejected, err))
			return
		}
	}
	err := c.fetch(ctx, wants, gots)
	if c.cfg.Copy {
		for i := range gots {
			gots[i] = copied(c.cfg.Arena, gots[i])
		}
	}
	if err != nil {
		refuse(err)
	}
}

// fetch answers what it can without a call, and the rest with one, whose error it returns.
func (c *Client) fetch(ctx context.Context, wants []store.Want, gots []store.Got) error {
	answered := 0
	if l := c.link.Load(); l != nil && ctx.Err() == nil {
		answered = l.reach(wants, gots)
	}
	if answered == len(wants) {
		return nil
	}
	ask, into, at := wants, gots, []int(nil)
	if answered > 0 {
		ask, at = nil, make([]int, 0, len(wants)-answered)
		for i := range gots {
			if gots[i].Buf == nil && gots[i].Err == nil {
				ask, at = append(ask, wants[i]), append(at, i)
			}
		}
		into = make([]store.Got, len(ask))
	}
	err := c.call(ctx, c.reads, func(cn *conn) error {
		if cn.link != nil {
			return cn.lend(c.cfg.Arena, ask, into)
		}
		return cn.get(c.cfg.Arena, ask, into)
	})
	for j, i := range at {
		gots[i] = into[j]
	}
	return err
}

// copied returns got, with a copy in a in the place of a loan.
func copied(a *arena.Arena, got store.Got) store.Got {
	if got.Buf == nil || !got.Buf.Foreign() {
		return got
	}
	defer got.Buf.Release()
	b, err := a.Reserve(got.Buf.Len())
	if err != nil {
		return store.Got{Err: fmt.Errorf("%w: no memory for %d bytes: %w", store.ErrRejected, got.Buf.Len(), err)}
	}
	arena.Copy(b.Bytes(), got.Buf.Bytes())
	b.Commit()
	return store.Got{Buf: b}
}

// lend does a GET by loan. Before all offers are read nothing is handed out, so that the Store may take
// back what it lent when the lane breaks.
func (cn *conn) lend(a *arena.Arena, wants []store.Want, gots []store.Got) error {
	id, err := cn.send(opLend, len(wants), func(b []byte) []byte { return appendWants(b, wants) })
	if err != nil {
		return err
	}
	h, body, err := cn.reply(opLend, id)
	if err != nil {
		return err
	}
	if h.count != len(wants) || len(body) != offerBytes*h.count {
		return fmt.Errorf("%w: %d answers in %d bytes to %d keys", errProtocol, h.count, len(body), len(wants))
	}
	var sent, bytes []int // items whose objects follow, and their sizes
	c := cursor{b: body}
	for i, w := range wants {
		follows := 0
		if gots[i], follows, err = cn.offered(&c, w); err != nil {
			undo(gots)
			return err
		}
		if follows > 0 {
			sent, bytes = append(sent, i), append(bytes, follows)
		}
	}
	// From here on the loans are the caller's; a lane that breaks costs the objects that were to follow.
	cn.request = 0
	for j, i := range sent {
		if gots[i], err = cn.object(a, bytes[j]); err != nil {
			return err
		}
	}
	return nil
}

// offered reads what the Store offers for w: an answer, or the size of an object that follows.
func (cn *conn) offered(c *cursor, w store.Want) (got store.Got, follows int, err error) {
	st, n, off, loan := status(c.u64()), c.u64(), c.u64(), c.u64()
	switch {
	case st == statusMiss:
		got.Err = store.ErrMiss
	case st == statusRejected:
		got.Err = fmt.Errorf("%w: object of %d bytes, want %d", store.ErrRejected, n, w.Bytes)
	case st == statusLent && suits(n, w):
		got.Buf, err = cn.link.borrow(loan, off, n)
	case st == statusOK && suits(n, w):
		follows = int(n)
	default:
		err = fmt.Errorf("%w: item of status %d and %d bytes, want %d", errProtocol, st, n, w.Bytes)
	}
	return got, follows, err
}

// undo forgets the loans of a Store that turned out to be none to take something from.
func undo(gots []store.Got) {
	for i := range gots {
		if gots[i].Buf != nil {
			gots[i].Buf.Release()
		}
		gots[i] = store.Got{}
	}
}
