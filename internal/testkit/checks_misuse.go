// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// arenaFull: an object that the reader has no memory for fails alone. A loan needs none.
func (c *contract) arenaFull() {
	c.mustPut(key(1), pattern(1, 64<<10))
	c.mustPut(key(2), pattern(2, 64))
	// Take what is left in shrinking pieces, so that only scraps remain.
	for n := 1 << 30; n >= 4096; {
		b, err := c.arena.Reserve(n)
		if err != nil {
			n /= 2
			continue
		}
		defer b.Abort()
	}
	gots := c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: 64 << 10}, {Key: key(3), Bytes: 64}})
	if gots[0].Buf != nil && gots[0].Buf.Foreign() {
		c.expect(gots[0], pattern(1, 64<<10), nil)
	} else {
		c.expect(gots[0], nil, store.ErrRejected)
	}
	c.expect(gots[1], nil, store.ErrMiss)
}

func (c *contract) badKeys() {
	for _, k := range []embedding.Key{"", embedding.Key(strings.Repeat("k", 1<<20))} {
		if _, err := c.s.Exists(c.ctx(), []embedding.Key{k}); !errors.Is(err, store.ErrRejected) {
			c.Errorf("Exists(key of %d bytes): %v, want ErrRejected", len(k), err)
		}
		c.expect(c.s.Get(c.ctx(), []store.Want{{Key: k, Bytes: 100}})[0], nil, store.ErrRejected)
		if err := c.put(k, []byte("x")); !errors.Is(err, store.ErrRejected) {
			c.Errorf("Put(key of %d bytes): %v, want ErrRejected", len(k), err)
		}
	}
	odd := embedding.Key("a@b:c/d\x00\xffé 漢")
	c.mustPut(odd, []byte("x"))
	c.expect(c.s.Get(c.ctx(), []store.Want{{Key: odd, Bytes: 1}})[0], []byte("x"), nil)
}

// cancelled: an ended ctx ends the call with a class and its own cause, and harms no later call.
func (c *contract) cancelled() {
	c.mustPut(key(1), pattern(1, 100))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.s.Exists(ctx, []embedding.Key{key(1)})
	if !errors.Is(err, context.Canceled) {
		c.Errorf("Exists with an ended context: %v", err)
	} else {
		c.oneClass(err)
	}
	g := c.s.Get(ctx, []store.Want{{Key: key(1), Bytes: 100}})[0]
	if !errors.Is(g.Err, context.Canceled) {
		c.Errorf("Get with an ended context: %v", g.Err)
	}
	b := c.buf([]byte("x"))
	defer b.Release()
	if err := c.s.Put(ctx, key(2), b, store.PutOptions{}); !errors.Is(err, context.Canceled) {
		c.Errorf("Put with an ended context: %v", err)
	}
	c.expect(c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: 100}})[0], pattern(1, 100), nil)
}

// putBorrows: what the caller does with its memory after Put does not reach the Store.
func (c *contract) putBorrows() {
	b, err := c.arena.Reserve(1000)
	if err != nil {
		c.Fatal(err)
	}
	defer b.Abort()
	copy(b.Bytes(), pattern(1, 1000))
	if err := c.s.Put(c.ctx(), key(1), b, store.PutOptions{}); err != nil {
		c.Fatalf("Put: %v", err)
	}
	clear(b.Bytes())
	c.expect(c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: 1000}})[0], pattern(1, 1000), nil)
}

func (c *contract) closed() {
	c.mustPut(key(1), pattern(1, 100))
	kept := c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: 100}})[0]
	c.close()
	c.expect(kept, pattern(1, 100), nil) // what was read outlives the Store
	if _, err := c.s.Exists(c.ctx(), []embedding.Key{key(1)}); !errors.Is(err, store.ErrUnavailable) {
		c.Errorf("Exists after Close: %v", err)
	}
	c.expect(c.s.Get(c.ctx(), []store.Want{{Key: key(1), Bytes: 100}})[0], nil, store.ErrUnavailable)
	if err := c.put(key(1), []byte("x")); !errors.Is(err, store.ErrUnavailable) {
		c.Errorf("Put after Close: %v", err)
	}
	if err := c.s.Remove(c.ctx(), []embedding.Key{key(1)}); !errors.Is(err, store.ErrUnavailable) {
		c.Errorf("Remove after Close: %v", err)
	}
}

// mixedLoad: whatever the order of calls, nobody sees bytes of another key.
func (c *contract) mixedLoad() {
	const keys, size = 8, 16 << 10
	objects := make([][]byte, keys)
	for i := range objects {
		objects[i] = pattern(uint64(i), size+i)
	}
	each(6, func(w int) {
		r := rand.New(rand.NewPCG(uint64(w), 1))
		for range 60 {
			i := r.IntN(keys)
			switch r.IntN(4) {
			case 0:
				c.mustPut(key(i), objects[i])
			case 1:
				if err := c.s.Remove(c.ctx(), []embedding.Key{key(i)}); err != nil {
					c.Errorf("Remove: %v", err)
				}
			default:
				g := c.s.Get(c.ctx(), []store.Want{{Key: key(i), Bytes: 2 * size}})[0]
				if errors.Is(g.Err, store.ErrMiss) {
					continue
				}
				c.expect(g, objects[i], nil)
			}
		}
	})
}
