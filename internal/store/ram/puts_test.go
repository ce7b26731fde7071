// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// TestPutAll stores many objects at once: on offer and over the connection, among some that are refused, each
// for itself, and more than go into one message.
func TestPutAll(t *testing.T) {
	l := newLending(t, 64*mib)
	c, a := l.client(32 * mib)
	other := newArena(t, 4*mib)
	const n = 64 << 10
	var puts []store.Putting
	want := map[embedding.Key]error{}
	add := func(k embedding.Key, size int, from int, opts store.PutOptions, refused error) {
		t.Helper()
		memory := a
		if from%5 == 4 {
			memory = other
		}
		buf := filled(t, memory, size, byte(from))
		t.Cleanup(buf.Release)
		puts = append(puts, store.Putting{Key: k, Buf: buf, Opts: opts})
		want[k] = refused
	}
	for i := range 3*maxPuts + 5 {
		add(embedding.Key(fmt.Sprint("k", i)), n, i, store.PutOptions{}, nil)
	}
	add("k0 again", n, 0, store.PutOptions{Tenant: strings.Repeat("t", maxTenantBytes+1)}, store.ErrRejected)
	add("", n, 0, store.PutOptions{}, store.ErrRejected)
	add(embedding.Key(strings.Repeat("k", maxKeyBytes+1)), n, 0, store.PutOptions{}, store.ErrRejected)
	mustPut(t, c, a, "k3", n, 99) // is there already, and stays
	dials := c.Stats().Dials
	errs := c.PutAll(t.Context(), puts)
	if len(errs) != len(puts) {
		t.Fatalf("%d answers to %d PUTs", len(errs), len(puts))
	}
	for i, p := range puts {
		if refused := want[p.Key]; !errors.Is(errs[i], refused) {
			t.Errorf("PUT %d: %v, want %v", i, errs[i], refused)
		} else if refused == nil {
			size, v, err := get(t, c, p.Key)
			if fill := p.Buf.Bytes()[0]; err != nil || size != n || v != fill && p.Key != "k3" || p.Key == "k3" && v != 99 {
				t.Errorf("%s: %d bytes of %d, %v", p.Key, size, v, err)
			}
		}
	}
	if got := c.Stats().Dials; got != dials {
		t.Errorf("%d connections more; refusals must cost none", got-dials)
	}
	l.settled()
}

// TestPutAllCancelled gives batches up at any moment: what was answered is there, and no room stays reserved.
func TestPutAllCancelled(t *testing.T) {
	l := newLending(t, 16*mib)
	c, a := l.client(16 * mib)
	buf := filled(t, a, 256<<10, 7)
	defer buf.Release()
	for round := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		var puts []store.Putting
		for i := range 8 {
			puts = append(puts, store.Putting{Key: embedding.Key(fmt.Sprint(round, "/", i)), Buf: buf})
		}
		go func() {
			for range round * 200 {
				_ = ctx.Err()
			}
			cancel()
		}()
		for i, err := range c.PutAll(ctx, puts) {
			if err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("PUT %d of round %d: %v", i, round, err)
			}
			if err == nil {
				if n, v, err := get(t, c, puts[i].Key); n != buf.Len() || v != 7 || err != nil {
					t.Errorf("object %d of round %d was stored and is %d bytes of %d, %v", i, round, n, v, err)
				}
			}
		}
		cancel()
		var keys []embedding.Key
		for _, p := range puts {
			keys = append(keys, p.Key)
		}
		if err := c.Remove(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
	}
	l.settled()
}
