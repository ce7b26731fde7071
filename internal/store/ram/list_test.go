// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// listAll reads a whole list in pages.
func listAll(t *testing.T, c store.Lister, prefix string, page int) []store.Entry {
	t.Helper()
	var all []store.Entry
	after := embedding.Key("")
	for {
		got, err := c.List(t.Context(), prefix, after, page)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return all
		}
		if len(got) > page {
			t.Fatalf("%d entries in a page of %d", len(got), page)
		}
		all = append(all, got...)
		after = got[len(got)-1].Key
	}
}

func TestListPages(t *testing.T) {
	path, a := socket(t), newArena(t, 1<<20)
	serve(t, path, Config{})
	c := dial(t, ClientConfig{Path: path, Arena: a})
	want := map[embedding.Key]int{}
	for i := range 700 { // more than one step and one batch
		k := embedding.Key(fmt.Sprintf("p%d/%04d", i%2, (i*7919)%10000))
		mustPut(t, c, a, k, 10+i%5, 1)
		want[k] = 10 + i%5
	}
	for _, f := range []struct {
		prefix     string
		page, want int
	}{{"", 1000, 700}, {"", 7, 700}, {"p0/", 100, 350}, {"p1/", 350, 350}, {"q", 10, 0}} {
		got := listAll(t, c, f.prefix, f.page)
		if len(got) != f.want {
			t.Errorf("prefix %q by %d: %d entries, want %d", f.prefix, f.page, len(got), f.want)
		}
		for i, e := range got {
			if want[e.Key] != int(e.Bytes) || !strings.HasPrefix(string(e.Key), f.prefix) {
				t.Errorf("prefix %q: entry %+v", f.prefix, e)
			}
			if i > 0 && e.Key <= got[i-1].Key {
				t.Fatalf("%q stands behind %q", e.Key, got[i-1].Key)
			}
		}
	}
	if _, err := c.List(t.Context(), strings.Repeat("x", maxKeyBytes+1), "", 1); err == nil {
		t.Error("a prefix that is too long was sent")
	}
}

func TestListTellsTheState(t *testing.T) {
	path, a := socket(t), newMapped(t, 1<<20)
	serve(t, path, Config{Mapped: true})
	c := dial(t, ClientConfig{Path: path, Arena: a})
	b := filled(t, a, 100, 1)
	defer b.Release()
	if err := c.Put(t.Context(), "k", b, store.PutOptions{Tenant: "acme", TTL: time.Hour, SoftPin: true}); err != nil {
		t.Fatal(err)
	}
	one := func() store.Entry {
		t.Helper()
		all := listAll(t, c, "", 10)
		if len(all) != 1 {
			t.Fatalf("%d entries, want 1", len(all))
		}
		return all[0]
	}
	e := one()
	if e.Tenant != "acme" || !e.SoftPin || e.TTL <= 59*time.Minute || e.TTL > time.Hour || e.Pins != 0 || e.LastUse > e.Age {
		t.Errorf("after the PUT: %+v", e)
	}
	got := c.Get(t.Context(), []store.Want{{Key: "k", Bytes: 100}})[0]
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if e := one(); e.Pins != 1 || e.LastUse >= e.Age {
		t.Errorf("on loan: %+v, want one pin and a later use", e)
	}
	got.Buf.Release()
	eventually(t, "the loan is back", func() bool { return one().Pins == 0 })
	sum, err := c.Totals(t.Context())
	if err != nil || sum.Objects != 1 || sum.Bytes != 100 || sum.Hits != 1 || sum.LimitBytes != 64<<20 || sum.MaxObject != 32<<20 {
		t.Errorf("totals %+v, %v", sum, err)
	}
}

// What is there from the first page to the last is listed, whatever comes and goes meanwhile.
func TestListWhileOthersWrite(t *testing.T) {
	path, a := socket(t), newArena(t, 1<<20)
	srv, _ := serve(t, path, Config{})
	c := dial(t, ClientConfig{Path: path, Arena: a})
	for i := range 600 {
		mustPut(t, c, a, embedding.Key(fmt.Sprintf("stays/%03d", i)), 8, 1)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { churn(ctx, c, a) })
	for range 20 {
		seen := map[embedding.Key]bool{}
		for _, e := range listAll(t, c, "", 100) {
			if seen[e.Key] {
				t.Errorf("%s is listed twice", e.Key)
			}
			seen[e.Key] = true
		}
		for i := range 600 {
			if k := embedding.Key(fmt.Sprintf("stays/%03d", i)); !seen[k] {
				t.Errorf("%s is missing", k)
			}
		}
	}
	stop()
	wg.Wait()
	srv.shelf.mu.Lock()
	defer srv.shelf.mu.Unlock()
	if len(srv.shelf.all) != len(srv.shelf.objects) {
		t.Errorf("%d places for %d objects", len(srv.shelf.all), len(srv.shelf.objects))
	}
	for i, o := range srv.shelf.all {
		if o.at != i || srv.shelf.objects[o.key] != o {
			t.Errorf("place %d holds %s, which says %d", i, o.key, o.at)
		}
	}
}

// An object that takes the place of one that leaves meanwhile is looked at twice, and listed once.
func TestListOfWhatMoves(t *testing.T) {
	path, a := socket(t), newArena(t, 1<<20)
	srv, _ := serve(t, path, Config{})
	c := dial(t, ClientConfig{Path: path, Arena: a})
	const n = listStep + 10
	for i := range n {
		mustPut(t, c, a, embedding.Key(fmt.Sprintf("%03d", i)), 8, 1)
	}
	srv.shelf.mu.Lock()
	srv.shelf.listed = func() { srv.shelf.remove("000") } // the first to be stored is the last to be looked at
	srv.shelf.mu.Unlock()
	all := listAll(t, c, "", 100)
	for i, e := range all {
		if want := embedding.Key(fmt.Sprintf("%03d", i+1)); e.Key != want {
			t.Fatalf("entry %d is %s, want %s", i, e.Key, want)
		}
	}
	if len(all) != n-1 {
		t.Errorf("%d entries, want %d", len(all), n-1)
	}
}

// churn stores and removes objects until ctx ends.
func churn(ctx context.Context, c *Client, a *arena.Arena) {
	for i := 0; ctx.Err() == nil; i++ {
		b, err := a.Reserve(8)
		if err != nil {
			return
		}
		b.Commit()
		k := embedding.Key(fmt.Sprintf("goes/%03d", i%50))
		if i%3 == 2 {
			_ = c.Remove(ctx, []embedding.Key{embedding.Key(fmt.Sprintf("goes/%03d", (i*17)%50))})
		}
		_ = c.Put(ctx, k, b, store.PutOptions{})
		b.Release()
	}
}

// A body that does not fit its op ends the connection and nothing else.
func TestListHostile(t *testing.T) {
	path, a := socket(t), newArena(t, 1<<20)
	srv, _ := serve(t, path, Config{})
	c := dial(t, ClientConfig{Path: path, Arena: a})
	mustPut(t, c, a, "k", 8, 1)
	for _, body := range []string{"", "\x05\x00\x00\x00ab", "\xff\xff\xff\xff", "\x00\x00\x00\x00x"} {
		before := srv.malformed.Load()
		err := c.call(t.Context(), c.reads, func(cn *conn) error {
			id, err := cn.send(opList, 1, func(b []byte) []byte { return append(b, body...) })
			if err != nil {
				return err
			}
			_, _, err = cn.reply(opList, id)
			return err
		})
		if err == nil || srv.malformed.Load() != before+1 {
			t.Errorf("body %q: %v, want a refusal", body, err)
		}
		if n := len(listAll(t, c, "", 5)); n != 1 {
			t.Errorf("then the list has %d entries", n)
		}
	}
}
