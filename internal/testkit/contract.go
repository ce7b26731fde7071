// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// StoreUnderTest is an empty Store and the arena that its Get reads into. PUTs of the suite come from
// the same arena, so it needs room for 8 MiB, and the Store for 16 objects of 64 KiB at least.
type StoreUnderTest struct {
	Store store.Store
	Arena *arena.Arena
}

// StoreContract checks what package store promises of every back end. fresh makes an empty Store; the
// suite closes it and then checks that every reference to the arena is back.
func StoreContract(t *testing.T, fresh func(t *testing.T) StoreUnderTest) {
	for name, check := range map[string]func(*contract){
		"empty":          (*contract).empty,
		"round trip":     (*contract).roundTrip,
		"batch order":    (*contract).batchOrder,
		"sizes":          (*contract).sizes,
		"duplicate put":  (*contract).duplicatePut,
		"concurrent put": (*contract).concurrentPut,
		"remove":         (*contract).remove,
		"too large":      (*contract).tooLarge,
		"arena full":     (*contract).arenaFull,
		"bad keys":       (*contract).badKeys,
		"cancelled":      (*contract).cancelled,
		"put borrows":    (*contract).putBorrows,
		"closed":         (*contract).closed,
		"mixed load":     (*contract).mixedLoad,
	} {
		t.Run(name, func(t *testing.T) {
			u := fresh(t)
			c := &contract{T: t, s: u.Store, arena: u.Arena}
			t.Cleanup(func() {
				if !c.done {
					c.close()
				}
				if st := u.Arena.Stats(); st.Reserved != 0 || st.Committed != 0 {
					t.Errorf("references left: %d bytes reserved, %d committed", st.Reserved, st.Committed)
				}
			})
			check(c)
		})
	}
}

// contract is one check in progress.
type contract struct {
	*testing.T
	s     store.Store
	arena *arena.Arena
	done  bool
}

func (c *contract) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	c.Cleanup(cancel)
	return ctx
}

func (c *contract) close() {
	c.Helper()
	c.done = true
	if err := c.s.Close(); err != nil {
		c.Errorf("Close: %v", err)
	}
}

// pattern returns n bytes that only seed yields.
func pattern(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	r.Read(b)
	return b
}

func key(i int) embedding.Key { return embedding.Key(fmt.Sprintf("contract@id:%d", i)) }

// buf puts data into the arena; the caller owns the reference.
func (c *contract) buf(data []byte) *arena.Buf {
	c.Helper()
	b, err := c.arena.Reserve(len(data))
	if err != nil {
		c.Fatalf("Reserve(%d): %v", len(data), err)
	}
	copy(b.Bytes(), data)
	b.Commit()
	return b
}

func (c *contract) put(k embedding.Key, data []byte) error {
	c.Helper()
	b := c.buf(data)
	defer b.Release()
	return c.s.Put(c.ctx(), k, b, store.PutOptions{})
}

func (c *contract) mustPut(k embedding.Key, data []byte) {
	c.Helper()
	if err := c.put(k, data); err != nil {
		c.Fatalf("Put(%s, %d bytes): %v", k, len(data), err)
	}
}

// expect checks one answer against the object it should hold, or the class it should fail with.
func (c *contract) expect(g store.Got, data []byte, class error) {
	c.Helper()
	switch {
	case g.Buf != nil && g.Err != nil:
		c.Errorf("Got has both a Buf and the error %v", g.Err)
	case class != nil && !errors.Is(g.Err, class):
		c.Errorf("error %v, want class %v", g.Err, class)
	case class == nil && g.Err != nil:
		c.Errorf("error %v, want an object of %d bytes", g.Err, len(data))
	case class == nil && !bytes.Equal(g.Buf.Bytes(), data):
		c.Errorf("object of %d bytes differs from what was stored (%d bytes)", g.Buf.Len(), len(data))
	}
	if g.Err != nil {
		c.oneClass(g.Err)
	}
	if g.Buf != nil {
		g.Buf.Release()
	}
}

// oneClass checks that err wraps exactly one class.
func (c *contract) oneClass(err error) {
	c.Helper()
	n := 0
	for _, class := range []error{store.ErrMiss, store.ErrRejected, store.ErrUnavailable, store.ErrUnconfirmed} {
		if errors.Is(err, class) {
			n++
		}
	}
	if n != 1 {
		c.Errorf("error %q has %d classes, want exactly 1", err, n)
	}
}

// each runs f n times at once and waits.
func each(n int, f func(int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
