// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// maxExistKeys bounds one exists call: 2000 keys took 2 ms.
const maxExistKeys = 1000

// Exists implements store.Store. Sizes are unknown: asking would cost one call for each key.
func (c *Client) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	start := time.Now()
	defer c.count.exists.call(start)
	states := make([]store.State, len(keys))
	for from := 0; from < len(keys); from += maxExistKeys {
		to := min(from+maxExistKeys, len(keys))
		if err := c.existSome(ctx, keys[from:to], states[from:to]); err != nil {
			c.count.exists.item(err, nil)
			return nil, err
		}
	}
	for _, st := range states {
		if st.Present {
			c.count.exists.item(nil, nil)
		} else {
			c.count.exists.item(store.ErrMiss, nil)
		}
	}
	return states, nil
}

func (c *Client) existSome(ctx context.Context, keys []embedding.Key, states []store.State) error {
	asked := make([]string, len(keys))
	for i, k := range keys {
		if err := checkKey(k); err != nil {
			return err
		}
		asked[i] = string(k)
	}
	l, _, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer c.leave()
	ctx, cancel := c.bound(ctx)
	defer cancel()
	began := time.Now()
	rs, err := l.read().exist(ctx, asked)
	if err != nil {
		return c.unavailable(err)
	}
	for i, r := range rs {
		c.count.code(r.code)
		if r.code == codeRPCFailed || r.code == codeRPCTimeout {
			err := fmt.Errorf("%v", r.code)
			c.breaker.trip(began, err)
			return c.unavailable(err)
		}
		// Any other code is an absence: a key that cannot be asked for cannot be read either.
		states[i].Present = r.code == codeOK && r.n == 1 && !c.wary.has(asked[i]) && !c.doomed.has(asked[i])
	}
	return nil
}

// removePause is how long Remove waits between two attempts at a key that is being read.
const removePause = 10 * time.Millisecond

// Remove implements store.Store. A key that readers have a lease on is not torn away under them: the
// space would be given to another object while they read. When it is still leased after
// Config.RemoveWait, the error is ErrRejected; the key is hidden from this client and removed in the
// background.
func (c *Client) Remove(ctx context.Context, keys []embedding.Key) error {
	start := time.Now()
	defer c.count.remove.call(start)
	var first error
	for _, k := range keys {
		err := c.removeOne(ctx, k)
		c.count.remove.item(err, nil)
		if first == nil {
			first = err
		}
	}
	return first
}

func (c *Client) removeOne(ctx context.Context, k embedding.Key) error {
	if err := checkKey(k); err != nil {
		return err
	}
	l, _, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer c.leave()
	ctx, cancel := c.bound(ctx)
	defer cancel()
	for end := time.Now().Add(c.cfg.RemoveWait); ; {
		began := time.Now()
		r, err := l.write().remove(ctx, string(k), false)
		if err != nil {
			return c.unavailable(err)
		}
		c.count.code(r.code)
		switch r.code {
		case codeOK, codeNotFound, codeNotReady: // what is being written is not there yet
			return nil
		case codeRPCFailed, codeRPCTimeout:
			err := fmt.Errorf("%v", r.code)
			c.breaker.trip(began, err)
			return c.unavailable(err)
		}
		if time.Now().After(end) || pause(ctx, removePause) != nil {
			c.doomed.add(string(k))
			return fmt.Errorf("mooncake: key %s: %w: %v; it is removed when its readers are done", k, store.ErrRejected, r.code)
		}
	}
}

const (
	// maxDoomed bounds the removals that wait; further ones are forgotten.
	maxDoomed = 4096
	// maxDoomedAge is when a key that is read all the time is shown again.
	maxDoomedAge = 2 * time.Minute
	// doomedPerRound bounds the removals of one round of upkeep.
	doomedPerRound = 64
)

// doomed are keys whose removal waits for readers' leases.
type doomed struct {
	mu    sync.Mutex // guards since
	since map[string]time.Time
}

func (d *doomed) add(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since == nil {
		d.since = map[string]time.Time{}
	}
	if _, ok := d.since[key]; !ok && len(d.since) < maxDoomed {
		d.since[key] = time.Now()
	}
}

func (d *doomed) has(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.since[key]
	return ok
}

func (d *doomed) drop(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.since, key)
}

// some returns keys to retry, and forgets those that are too old.
func (d *doomed) some() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []string
	for k, since := range d.since {
		if time.Since(since) > maxDoomedAge {
			delete(d.since, k)
		} else if len(keys) < doomedPerRound {
			keys = append(keys, k)
		}
	}
	return keys
}

// retryRemovals removes doomed keys whose leases have ended.
func (c *Client) retryRemovals(l *link) {
	if c.breaker.open() != nil {
		return
	}
	ctx, cancel := timeout(c.ctx, c.cfg.CallTimeout)
	defer cancel()
	for _, k := range c.doomed.some() { // the codes of keys that stay need no word: they are tried again
		r, err := l.write().remove(ctx, k, false)
		if err != nil {
			return
		}
		if r.code == codeOK || r.code == codeNotFound {
			c.doomed.drop(k)
		}
	}
}
