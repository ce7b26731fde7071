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

// A PUT that finds no room wakes the master's eviction, which takes about 10 ms; one retry after 20 ms
// cured each of 23 such PUTs in a run that filled a segment ten times over.
const (
	noSpacePause = 20 * time.Millisecond
	noSpaceTries = 3
)

// Put implements store.Store. Success means that the object is there, or is being written by somebody
// else. Options are not honoured.
func (c *Client) Put(ctx context.Context, key embedding.Key, buf *arena.Buf, _ store.PutOptions) error {
	start := time.Now()
	err := c.put(ctx, string(key), buf)
	c.count.put.item(err, buf)
	c.count.put.call(start)
	return err
}

func (c *Client) put(ctx context.Context, key string, buf *arena.Buf) error {
	if err := checkKey(embedding.Key(key)); err != nil {
		return err
	}
	l, s, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer c.leave()
	if err := c.roomFor(); err != nil {
		return err
	}
	at, err := c.win.at(buf)
	if err != nil {
		return fmt.Errorf("mooncake: key %s: %w: %w", key, store.ErrRejected, err)
	}
	if c.wary.has(key) {
		return fmt.Errorf("mooncake: key %s: %w: a storage node that may be dead answers for it", key, store.ErrRejected)
	}
	if c.doomed.has(key) {
		return fmt.Errorf("mooncake: key %s: %w: its removal waits for readers", key, store.ErrRejected)
	}
	// Retries are sent under the same key: whoever wins, the object is the same.
	c.win.send(buf)
	for try := 1; ; try++ {
		r, err := c.putOnce(ctx, l, s, key, buf, at)
		switch {
		case err != nil:
			return fmt.Errorf("key %s: %w", key, err)
		case try <= noSpaceTries && r.code == codeNoSpace:
			if err := pause(ctx, noSpacePause); err != nil {
				return c.unavailable(err)
			}
			continue
		case try == 1 && r.code == codeBadParams && c.lostMapping(ctx, l, s):
			if l, s = c.current(); l != nil {
				continue
			}
			return c.unavailable(errors.New("connection lost"))
		}
		if class := putClass(r.code); class != nil {
			return fmt.Errorf("mooncake: key %s of %d bytes: %w: %v", key, buf.Len(), class, r.code)
		}
		return nil
	}
}

func (c *Client) putOnce(ctx context.Context, l *link, s *session, key string, buf *arena.Buf, at place) (result, error) {
	t := &transfer{fn: fnPut, reply: putReply, value: asVoid, class: putClass, l: l, s: s,
		keys: []string{key}, bufs: []*arena.Buf{buf}}
	rs, err := c.move(ctx, t, l.write(), encodePut(l.layout, t.keys, []place{at}, s.id))
	if err != nil {
		return result{}, err
	}
	return rs[0], nil
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
