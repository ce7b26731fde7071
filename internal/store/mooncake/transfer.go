// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/store"
)

// transfer is one call that moves objects between the arena and the Store.
type transfer struct {
	fn    uint32
	reply typ
	value func(*decoder) int64
	class func(code) error
	keys  []string
	bufs  []*arena.Buf // of each key; borrowed
	l     *link
	s     *session
	began time.Time // set by move
}

// move makes the call and returns one result for each key. Buffers that may still be in use when it
// returns are in quarantine, and their keys under distrust; a result says so by its class. The error
// has a class too, and holds for all keys.
func (c *Client) move(ctx context.Context, t *transfer, on *conn, body []byte) ([]result, error) {
	// The ctx bounds the waiting, not the call, which nobody can take back.
	t.began = time.Now()
	ch, err := on.send(t.fn, body)
	if err != nil {
		return nil, c.unavailable(err) // nothing was sent
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	rep, err := on.await(ctx, ch)
	switch {
	case err == nil:
		return c.finish(ctx, t, rep)
	case c.ctx.Err() != nil:
		err = context.Cause(c.ctx)
	}
	return nil, c.abandon(t, on, ch, err)
}

// finish takes the answer in.
func (c *Client) finish(ctx context.Context, t *transfer, rep reply) ([]result, error) {
	rs, err := c.parse(t, rep)
	if err != nil {
		if errors.Is(err, store.ErrUnconfirmed) {
			c.holdAll(t, err)
			c.doubt(t.keys...)
		}
		return nil, err
	}
	for i, r := range rs {
		c.count.code(r.code)
		switch class := t.class(r.code); {
		case c.misfit(ctx, t, i, r.code):
			c.held.hold(t.bufs[i], t.s, codeOtherSize.String()) // it may have had the right size a moment ago
			rs[i].code = codeOtherSize
			t.l.noInline.Store(true)
		case errors.Is(class, store.ErrUnconfirmed):
			c.held.hold(t.bufs[i], t.s, r.code.String())
			c.held.failure(r.code.String())
			c.doubt(t.keys[i])
		case errors.Is(class, store.ErrUnavailable):
			c.breaker.trip(t.began, fmt.Errorf("%v", r.code))
		}
	}
	return rs, nil
}

// misfit reports whether a reading in the short way failed since the object is smaller than its buffer, of which the
// server says the same as of a transfer that failed.
func (c *Client) misfit(ctx context.Context, t *transfer, i int, failed code) bool {
	if t.fn != fnGetInline || failed != codeTransferFailed {
		return false
	}
	size, err := t.l.read().size(ctx, t.keys[i])
	return err == nil && size.code == codeOK && size.n != int64(t.bufs[i].Len())
}

// parse turns an answer into results, or an error with its class.
func (c *Client) parse(t *transfer, rep reply) ([]result, error) {
	switch {
	case foreign(rep.err):
		return nil, c.unavailable(rep.err) // refused before it began
	case rep.err != nil:
		return nil, c.unconfirmed(rep.err)
	}
	rs, err := newDecoder(rep.body, t.reply).results(len(t.keys), t.value)
	if err != nil {
		return nil, c.unconfirmed(err)
	}
	for i, r := range rs {
		if r.n < 0 || r.n > int64(t.bufs[i].Len()) {
			rs[i] = result{code: codeUnknownResponse} // a server that is so wrong may be writing anywhere
		}
	}
	return rs, nil
}

func (c *Client) unconfirmed(cause error) error {
	return fmt.Errorf("mooncake: %w: %w", errHeld, cause)
}

// abandon gives up waiting. The buffers are in quarantine until the answer comes after all, which the
// background waits for: the common case of a caller that left.
func (c *Client) abandon(t *transfer, on *conn, ch <-chan reply, cause error) error {
	c.count.abandoned.Add(1)
	hs := c.holdAll(t, cause)
	c.bg.Go(func() { // ends with the connection at the latest
		rep, _ := on.await(context.Background(), ch)
		rs, err := c.parse(t, rep)
		if errors.Is(err, store.ErrUnconfirmed) {
			c.doubt(t.keys...)
			return
		}
		for i, h := range hs {
			if err != nil || !errors.Is(t.class(rs[i].code), store.ErrUnconfirmed) {
				c.held.free(h)
			} else {
				c.held.failure(rs[i].code.String())
				c.doubt(t.keys[i])
			}
		}
	})
	return c.unconfirmed(cause)
}

func (c *Client) holdAll(t *transfer, cause error) []*held {
	hs := make([]*held, len(t.bufs))
	for i, b := range t.bufs {
		hs[i] = c.held.hold(b, t.s, cause.Error())
	}
	return hs
}

// doubt distrusts keys for as long as a dead storage node can answer for them.
func (c *Client) doubt(keys ...string) {
	for _, k := range keys {
		c.wary.add(k, c.cfg.ClientTTL)
	}
}

// allRefused says whether the server refused each key, as it does when the mapping is lost.
func allRefused(rs []result) bool {
	for _, r := range rs {
		if r.code != codeBadParams {
			return false
		}
	}
	return len(rs) > 0
}

// roomFor refuses transfers while too much of the arena is in doubt.
func (c *Client) roomFor() error {
	bytes, ranges, _ := c.held.size()
	if bytes <= c.win.bytes/limitShare {
		return nil
	}
	return c.unavailable(fmt.Errorf("%d ranges of %d bytes are in doubt, limit %d of an arena of %d: no further transfers until they are back",
		ranges, bytes, c.win.bytes/limitShare, c.win.bytes))
}
