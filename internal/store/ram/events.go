// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"fmt"

	"afterimage/internal/quick"
	"afterimage/internal/store"
)

// Events implements store.Store. The stream begins with a Resync, and has another whenever events
// were lost: when the reader lagged, and when the Store was away. It ends, and its channel is closed,
// when ctx ends or the client closes.
func (c *Client) Events(ctx context.Context) <-chan store.Event {
	ch := make(chan store.Event)
	if c.begin() != nil {
		close(ch)
		return ch
	}
	go func() {
		defer c.wg.Done()
		defer close(ch)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)()
		for wait := c.cfg.MinBackoff; ctx.Err() == nil; wait = min(2*wait, c.cfg.MaxBackoff) {
			if c.stream(ctx, ch) {
				wait = c.cfg.MinBackoff
			}
			pause(ctx, wait)
		}
	}()
	return ch
}

// stream forwards the events of one connection, and reports whether there were any.
func (c *Client) stream(ctx context.Context, ch chan<- store.Event) (any bool) {
	nc, err := c.dial(ctx)
	if err != nil {
		return false
	}
	cn := newConn(c, nc, quick.Poll{})
	defer cn.close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	if c.greet(cn, nil) != nil {
		return false
	}
	id, err := cn.send(opSubscribe, 0, func(b []byte) []byte { return b })
	if err != nil {
		return false
	}
	if _, _, err = cn.reply(opSubscribe, id); err != nil {
		return false
	}
	if cn.limit.met() != nil {
		return false
	}
	for {
		e, err := cn.event(id)
		if err != nil {
			return any
		}
		select {
		case ch <- e:
			any = true
		case <-ctx.Done():
			return any
		}
	}
}

// event reads one event of the subscription id.
func (cn *conn) event(id uint64) (store.Event, error) {
	_, body, err := cn.reply(opEvent, id)
	if err != nil {
		return store.Event{}, err
	}
	c := cursor{b: body}
	e := store.Event{Seq: c.u64()}
	code := c.u8()
	c.u8()
	if n := int(c.u16()); n > 0 {
		e.Key = c.key(n)
	}
	if err := c.end(); err != nil {
		return e, err
	}
	for kind, v := range eventCodes {
		if v == code {
			e.Kind = kind
			return e, nil
		}
	}
	return e, fmt.Errorf("%w: event of kind %d", errProtocol, code)
}

var eventCodes = map[store.EventKind]uint8{store.Stored: 1, store.Removed: 2, store.Resync: 3}

func eventCode(k store.EventKind) uint8 { return eventCodes[k] }
