// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"afterimage/internal/store"
)

// Readers pin, hold and check objects while writers turn over the Store, which is another process: no byte of
// what is held changes, and the Store's books balance in the end.
func TestPinsBesideEvictions(t *testing.T) {
	path := socket(t)
	start(t, "store", path)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	loads := make([]*load, 2)
	for i := range loads {
		a := newMapped(t, killArena)
		c := dial(t, ClientConfig{Path: path, Arena: a})
		loads[i] = &load{c: c, a: a}
		wg.Go(func() { loads[i].run(ctx, 1, 1) })
		wg.Go(func() { reread(ctx, loads[i]) })
	}
	watcher := dial(t, ClientConfig{Path: path})
	defer func() { cancel(); wg.Wait() }()
	for st := (store.Totals{}); st.Hits < uint64(200*rounds()) || st.Evictions < uint64(20*rounds()); time.Sleep(time.Millisecond) {
		var err error
		if st, err = watcher.Totals(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
	for _, l := range loads {
		if w := l.wrong.Load(); w != nil {
			t.Error(*w)
		}
		if st := l.c.Stats(); st.Pinned == 0 || st.Loans != 0 {
			t.Errorf("%+v, want objects that were pinned, and none left", st)
		}
	}
	eventually(t, "the end of all loans", func() bool {
		st, err := watcher.Totals(t.Context())
		return err == nil && st.Loans == 0 && st.LoanBytes == 0 && st.UploadBytes == 0
	})
}

// reread pins one object after the other as fast as it can, and checks the ends of each.
func reread(ctx context.Context, l *load) {
	rng := rand.New(rand.NewPCG(7, 7))
	for ctx.Err() == nil {
		i := rng.IntN(killKeys)
		k, n := keyAndSize(i)
		g := l.c.Get(ctx, []store.Want{{Key: k, Bytes: n, Exact: true}})[0]
		if g.Buf == nil {
			continue
		}
		p := g.Buf.Bytes()
		for range 3 {
			if check(p[:64], i) >= 0 || binary.LittleEndian.Uint64(p[n-n%8-8:]) != uint64(i)<<40|uint64(n-n%8-8) {
				l.fault("object %d (on loan: %v) has other bytes", i, g.Buf.Foreign())
			}
		}
		g.Buf.Release()
	}
}
