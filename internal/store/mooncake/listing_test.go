// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// TestListing asks a real master, in pages, and for keys that a URL must not take for its own.
func TestListing(t *testing.T) {
	t.Parallel()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{LeaseTTL: time.Hour})
	a := newArena(t, 16<<20)
	c := open(t, Config{Addr: m.Addr()}, a)
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[embedding.Key]int64{"p+&=#ü@embedding@model:a/b@id:1": 7, "with, a comma@id:2": 8}
	for i := range 40 {
		want[embedding.Key(fmt.Sprintf("embedding@model:m@id:%02d", i))] = int64(100 + i)
	}
	for k, n := range want {
		if err := put(t, c, a, k, int(n), 1); err != nil {
			t.Fatal(err)
		}
	}
	l := NewListing(c, m.AdminAddr())
	all := func(prefix string) []store.Entry {
		t.Helper()
		var out []store.Entry
		for after := embedding.Key(""); ; {
			page, err := l.List(t.Context(), prefix, after, 17)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				return out
			}
			out, after = append(out, page...), page[len(page)-1].Key
		}
	}
	entries := all("")
	if len(entries) != len(want) || !slices.IsSortedFunc(entries, func(a, b store.Entry) int { return strings.Compare(string(a.Key), string(b.Key)) }) {
		t.Errorf("%d entries, want %d in order", len(entries), len(want))
	}
	for _, e := range entries {
		n := want[e.Key]
		if strings.Contains(string(e.Key), ",") {
			n = 0 // nobody can ask for it
		}
		if e.Bytes != n {
			t.Errorf("%s has %d bytes, want %d", e.Key, e.Bytes, n)
		}
	}
	if got := all("embedding@model:m@id:1"); len(got) != 10 {
		t.Errorf("%d entries with a prefix, want 10", len(got))
	}
	if sum, err := l.Totals(t.Context()); err != nil || sum.Objects != int64(len(want)) || sum.Bytes < 4000 || sum.LimitBytes != 256<<20 {
		t.Errorf("totals %+v, %v", sum, err)
	}
	// What was listed and not read can be removed.
	if err := c.Remove(t.Context(), []embedding.Key{entries[0].Key}); err != nil {
		t.Errorf("remove after a listing: %v", err)
	}
}

// TestListingWithoutMaster: whatever answers in its place, the error names the address.
func TestListingWithoutMaster(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	talks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/get_all_keys" {
			fmt.Fprint(w, "a\nb\n")
		} else {
			fmt.Fprint(w, "<html>")
		}
	}))
	defer talks.Close()
	for _, address := range []string{strings.TrimPrefix(other.URL, "http://"), strings.TrimPrefix(talks.URL, "http://"), "127.0.0.1:1"} {
		l := NewListing(nil, address)
		if got, err := l.List(t.Context(), "", "", 10); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), address) {
			t.Errorf("%v, %v; want an error that names %s", got, err, address)
		}
	}
}
