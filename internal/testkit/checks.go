// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"math/rand/v2"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

func (c *contract) empty() {
	states, err := c.s.Exists(c.ctx(), nil)
	if err != nil || len(states) != 0 {
		c.Errorf("Exists of no key: %v, %v", states, err)
	}
	if got := c.s.Get(c.ctx(), nil); len(got) != 0 {
		c.Errorf("Get of nothing: %v", got)
	}
	if err := c.s.Remove(c.ctx(), nil); err != nil {
		c.Errorf("Remove of no key: %v", err)
	}
	states, err = c.s.Exists(c.ctx(), []embedding.Key{key(1)})
	if err != nil || len(states) != 1 || states[0].Present {
		c.Errorf("Exists in an empty Store: %v, %v", states, err)
	}
	c.expect(c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: 100}})[0], nil, store.ErrMiss)
}

func (c *contract) roundTrip() {
	for i, n := range []int{1, 63, 64, 4095, 4096, 4097, 64 << 10, 1<<20 + 1} {
		data := pattern(uint64(i), n)
		c.mustPut(key(i), data)
		states, err := c.s.Exists(c.ctx(), []embedding.Key{key(i)})
		if err != nil || !states[0].Present || states[0].Bytes != 0 && states[0].Bytes != int64(n) {
			c.Errorf("Exists after a Put of %d bytes: %v, %v", n, states, err)
		}
		c.expect(c.s.Get(c.ctx(), []store.Want{{Key: key(i), Bytes: n, Exact: true}})[0], data, nil)
	}
}

// batchOrder mixes hits and misses: answers come in the order of the questions, and a miss is its own
// item's alone. The batch is larger than any back end takes at once.
func (c *contract) batchOrder() {
	const n = 1100
	for i := 0; i < n; i += 3 {
		c.mustPut(key(i), pattern(uint64(i), 100+i))
	}
	keys, wants := make([]embedding.Key, n), make([]store.Want, n)
	for i, j := range rand.Perm(n) {
		keys[i], wants[i] = key(j), store.Want{Key: key(j), Bytes: 100 + j}
		if i == n/2 { // the same key twice in one batch
			keys[i], wants[i] = keys[0], wants[0]
		}
	}
	states, err := c.s.Exists(c.ctx(), keys)
	if err != nil || len(states) != n {
		c.Fatalf("Exists of %d keys: %d answers, %v", n, len(states), err)
	}
	gots := c.s.Get(c.ctx(), wants)
	if len(gots) != n {
		c.Fatalf("Get of %d keys: %d answers", n, len(gots))
	}
	for i, w := range wants {
		j := w.Bytes - 100
		if states[i].Present != (j%3 == 0) {
			c.Errorf("Exists[%d] of key %d: %v", i, j, states[i])
		}
		if j%3 == 0 {
			c.expect(gots[i], pattern(uint64(j), 100+j), nil)
		} else {
			c.expect(gots[i], nil, store.ErrMiss)
		}
	}
}

// sizes: what a Want does not allow is rejected, for that item alone.
func (c *contract) sizes() {
	data := pattern(1, 1000)
	c.mustPut(key(1), data)
	f := func(bytes int, exact bool, class error) {
		c.Helper()
		gots := c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: bytes, Exact: exact}, {Key: key(1), Bytes: 1000}})
		c.expect(gots[0], data, class)
		c.expect(gots[1], data, nil)
	}
	f(1000, true, nil)
	f(1001, false, nil)
	f(1001, true, store.ErrRejected)
	f(999, false, store.ErrRejected)
	f(0, false, store.ErrRejected)
	f(-1, true, store.ErrRejected)
}

func (c *contract) duplicatePut() {
	first := pattern(1, 500)
	c.mustPut(key(1), first)
	c.mustPut(key(1), first)
	c.mustPut(key(1), pattern(2, 700)) // changes nothing
	c.expect(c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: 700}})[0], first, nil)
}

// concurrentPut: of many writers of one key every one succeeds, and the object is whole.
func (c *contract) concurrentPut() {
	data := pattern(7, 64<<10)
	for round := range 20 {
		each(6, func(int) { c.mustPut(key(round%4), data) })
		c.expect(c.s.Get(c.ctx(), []store.Want{{Key: key(round % 4), Bytes: len(data), Exact: true}})[0], data, nil)
		if err := c.s.Remove(c.ctx(), []embedding.Key{key(round % 4)}); err != nil {
			c.Errorf("Remove: %v", err)
		}
	}
}

func (c *contract) remove() {
	c.mustPut(key(1), pattern(1, 100))
	for range 2 { // the second time it is gone already, which is no error
		if err := c.s.Remove(c.ctx(), []embedding.Key{key(1), key(2)}); err != nil {
			c.Errorf("Remove: %v", err)
		}
	}
	c.expect(c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: 100}})[0], nil, store.ErrMiss)
	c.mustPut(key(1), pattern(2, 100))
	c.expect(c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: 100}})[0], pattern(2, 100), nil)
}

// tooLarge applies where the back end states a limit that the arena can reach.
func (c *contract) tooLarge() {
	limit := c.s.Capabilities().MaxPut
	if limit == 0 || limit+1 > c.arena.Stats().Capacity {
		return
	}
	err := c.put(key(1), make([]byte, limit+1))
	if !errors.Is(err, store.ErrRejected) {
		c.Errorf("Put of %d bytes with limit %d: %v, want ErrRejected", limit+1, limit, err)
	}
	c.mustPut(key(1), pattern(1, 100))
}
