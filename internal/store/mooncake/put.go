// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

var _ store.Batcher = (*Client)(nil)

// A PUT that finds no room wakes the master's eviction, which takes about 10 ms; one retry after 20 ms
// cured each of 23 such PUTs in a run that filled a segment ten times over.
const (
	noSpacePause = 20 * time.Millisecond
	noSpaceTries = 3
)

// write is one distinct object of a PutAll.
type write struct {
	key  string
	buf  *arena.Buf
	at   place
	pin  bool
	puts []int  // indexes of the Puttings
	one  [1]int // memory of puts; mostly it is one
	err  error
}

// Put implements store.Store. Success means that the object is there, or is being written by somebody
// else. Of the options SoftPin is honoured: Mooncake has no time to live for an object, and a
// mooncake_client has one tenant for all of its workers.
func (c *Client) Put(ctx context.Context, key embedding.Key, buf *arena.Buf, opts store.PutOptions) error {
	return c.PutAll(ctx, []store.Putting{{Key: key, Buf: buf, Opts: opts}})[0]
}

// PutAll implements store.Batcher: the objects go in one call, as far as its bounds allow.
func (c *Client) PutAll(ctx context.Context, puts []store.Putting) []error {
	start := time.Now()
	errs := make([]error, len(puts))
	for ws := c.planPuts(puts, errs); len(ws) > 0; {
		n := writesPerCall(ws)
		c.writeBatch(ctx, ws[:n])
		for _, w := range ws[:n] {
			for _, i := range w.puts {
				errs[i] = w.err
			}
		}
		ws = ws[n:]
	}
	for i, err := range errs {
		c.count.put.item(err, puts[i].Buf)
	}
	c.count.put.call(start)
	return errs
}

// planPuts checks puts and groups them by key: of a key that a batch names twice, Mooncake keeps the last
// object, where the first is to stay. What planPuts refuses it answers in errs.
func (c *Client) planPuts(puts []store.Putting, errs []error) []*write {
	ws := make([]*write, 0, len(puts))
	var keys distinct
	for i, p := range puts {
		w, err := c.planPut(p)
		if err != nil {
			errs[i] = err
			continue
		}
		n, first := keys.number(p.Key)
		if first {
			w.puts = w.one[:0]
			ws = append(ws, w)
		}
		ws[n].puts = append(ws[n].puts, i)
	}
	return ws
}

func (c *Client) planPut(p store.Putting) (*write, error) {
	if err := checkKey(p.Key); err != nil {
		return nil, err
	}
	w := &write{key: string(p.Key), buf: p.Buf, pin: p.Opts.SoftPin}
	var err error
	switch w.at, err = c.win.at(p.Buf); {
	case err != nil:
		return nil, fmt.Errorf("mooncake: key %s: %w: %w", p.Key, store.ErrRejected, err)
	case c.wary.has(w.key):
		return nil, fmt.Errorf("mooncake: key %s: %w: a storage node that may be dead answers for it", p.Key, store.ErrRejected)
	case c.doomed.has(w.key):
		return nil, fmt.Errorf("mooncake: key %s: %w: its removal waits for readers", p.Key, store.ErrRejected)
	}
	return w, nil
}

// writesPerCall returns how many of ws make one call, at least one. A call pins all of its objects or none.
func writesPerCall(ws []*write) int {
	bytes := 0
	for i, w := range ws {
		if bytes += w.at.bytes; i > 0 && (i == maxBatchKeys || bytes > maxBatchBytes || w.pin != ws[0].pin) {
			return i
		}
	}
	return len(ws)
}

// writeBatch makes one call, and further ones for what a second try can mend. Retries are sent under the
// same key: whoever wins, the object is the same.
func (c *Client) writeBatch(ctx context.Context, ws []*write) {
	l, s, err := c.enter(ctx)
	if err == nil {
		defer c.leave()
		err = c.roomFor()
	}
	if err != nil {
		failWrites(ws, err)
		return
	}
	for _, w := range ws {
		c.win.send(w.buf)
	}
	for try := 1; len(ws) > 0; try++ {
		rs, err := c.writeOnce(ctx, l, s, ws)
		if err == nil && try == 1 && allRefused(rs) && c.lostMapping(ctx, l, s) {
			if l, s = c.current(); l != nil {
				continue
			}
			err = c.unavailable(errors.New("connection lost"))
		}
		if err != nil {
			failWrites(ws, err)
			return
		}
		if ws = sortWrites(ws, rs, try); len(ws) == 0 {
			return
		}
		if err := pause(ctx, noSpacePause); err != nil {
			failWrites(ws, c.unavailable(err))
			return
		}
	}
}

func failWrites(ws []*write, err error) {
	for _, w := range ws {
		w.err = fmt.Errorf("key %s: %w", w.key, err)
	}
}

// sortWrites enters the outcome of one call and returns the writes that found no room and may again.
func sortWrites(ws []*write, rs []result, try int) (again []*write) {
	for i, w := range ws {
		code := rs[i].code
		if code == codeNoSpace && try <= noSpaceTries {
			again = append(again, w)
		} else if class := putClass(code); class != nil {
			w.err = fmt.Errorf("mooncake: key %s of %d bytes: %w: %v", w.key, w.buf.Len(), class, code)
		}
	}
	return again
}

// writeOnce makes the call.
func (c *Client) writeOnce(ctx context.Context, l *link, s *session, ws []*write) ([]result, error) {
	t := &transfer{fn: fnPut, reply: putReply, value: asVoid, class: putClass, l: l, s: s,
		keys: make([]string, len(ws)), bufs: make([]*arena.Buf, len(ws))}
	places := make([]place, len(ws))
	for i, w := range ws {
		t.keys[i], t.bufs[i], places[i] = w.key, w.buf, w.at
	}
	return c.move(ctx, t, l.write(), encodePut(l.layout, t.keys, places, s.id, ws[0].pin))
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
