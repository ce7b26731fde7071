// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

const (
	// maxExistKeys bounds one exists call: 2000 keys took 2 ms.
	maxExistKeys = 1000
	// maxRemoveKeys bounds one call that removes, beside which no PUT runs on its connection.
	maxRemoveKeys = 250
)

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

// Remove implements store.Store: one call for all keys. Those that readers have a lease on are not torn away under
// them: the space would be given to another object while they read. For what is still leased after
// Config.RemoveWait, the error is ErrRejected; it is hidden from this client and removed in the background. The
// error is that of the first key that has one.
func (c *Client) Remove(ctx context.Context, keys []embedding.Key) (first error) {
	defer c.count.remove.call(time.Now())
	done := func(err error) {
		c.count.remove.item(err, nil)
		if first == nil {
			first = err
		}
	}
	asked := make([]string, 0, len(keys))
	for _, k := range keys {
		if err := checkKey(k); err != nil {
			done(err)
		} else {
			asked = append(asked, string(k))
		}
	}
	for some := range slices.Chunk(asked, maxRemoveKeys) {
		c.removeSome(ctx, some, done)
	}
	return first
}

// removeSome removes what one call takes. It calls done for each key.
func (c *Client) removeSome(ctx context.Context, keys []string, done func(error)) {
	all := func(err error) {
		for range keys {
			done(err)
		}
	}
	l, _, err := c.enter(ctx)
	if err != nil {
		all(err)
		return
	}
	defer c.leave()
	ctx, cancel := c.bound(ctx)
	defer cancel()
	for end := time.Now().Add(c.cfg.RemoveWait); ; {
		began := time.Now()
		rs, err := l.write().remove(ctx, keys, false)
		if err != nil {
			all(c.unavailable(err))
			return
		}
		if keys = c.sortRemovals(keys, rs, began, done); len(keys) == 0 {
			return
		}
		if time.Now().After(end) || pause(ctx, removePause) != nil {
			break
		}
	}
	for _, k := range keys {
		c.doomed.add(k)
		done(fmt.Errorf("mooncake: key %s: %w: it is removed when its readers are done", k, store.ErrRejected))
	}
}

// sortRemovals enters the outcome of a call that began then, and returns the keys that stay for the moment.
func (c *Client) sortRemovals(keys []string, rs []result, began time.Time, done func(error)) (stay []string) {
	for i, r := range rs {
		c.count.code(r.code)
		switch r.code {
		case codeOK, codeNotFound, codeNotReady: // what is being written is not there yet
			done(nil)
		case codeRPCFailed, codeRPCTimeout:
			err := fmt.Errorf("%v", r.code)
			c.breaker.trip(began, err)
			done(c.unavailable(err))
		default:
			stay = append(stay, keys[i])
		}
	}
	return stay
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
	keys := c.doomed.some()
	if len(keys) == 0 {
		return
	}
	rs, err := l.write().remove(ctx, keys, false)
	if err != nil {
		return
	}
	for i, r := range rs { // the codes of keys that stay need no word: they are tried again
		if r.code == codeOK || r.code == codeNotFound {
			c.doomed.drop(keys[i])
		}
	}
}
