// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"testing"
)

// A filter has all that was put in, and at most 2 of 100 others: 1 is expected of 10 bits a key.
func TestFilter(t *testing.T) {
	for _, n := range []int{1, 10, 1000, MaxFilterKeys} {
		f := NewFilter(n)
		for i := range n {
			f.Add(fmt.Sprint("in", i))
		}
		for i := range n {
			if key := fmt.Sprint("in", i); !f.Has(key) {
				t.Fatalf("of %d keys %s is not there", n, key)
			}
		}
		wrong := 0
		for i := range 20_000 {
			if f.Has(fmt.Sprint("out", i)) {
				wrong++
			}
		}
		if n >= 1000 && wrong > 400 {
			t.Errorf("of %d keys: %d of 20000 others are taken for there", n, wrong)
		}
	}
	if n := len(NewFilter(MaxFilterKeys)); n > 64<<10 {
		t.Errorf("the largest filter takes %d bytes", n)
	}
}

// Whatever a peer sends for a filter is one; without room it holds nothing.
func TestFilterEmpty(t *testing.T) {
	for _, f := range []Filter{nil, {}, NewFilter(0), {0}} {
		if f.Has("k") {
			t.Errorf("%v has a key", f)
		}
	}
	NewFilter(0).Add("k")
	if f := (Filter{0xff}); !f.Has("k") {
		t.Error("a full filter lacks a key")
	}
}

func TestHolder(t *testing.T) {
	peers := func(loads ...int) (out []Peer) {
		for i, l := range loads {
			out = append(out, Peer{Name: fmt.Sprint("e", i), Ready: true, Load: l})
		}
		return out
	}
	const id = "picture"
	rank := Rank(id, peers(0, 0, 0))
	first, second, third := rank[0], rank[1], rank[2]
	busy := func(which int, load int) []Peer {
		ps := peers(0, 0, 0)
		ps[which].Load = load
		return ps
	}
	gone := peers(0, 0, 0)
	gone[second].Draining = true
	for name, c := range map[string]struct {
		peers []Peer
		holds []int
		want  int
	}{
		"nobody":                          {peers(0, 0, 0), nil, first},
		"the first":                       {peers(0, 0, 0), []int{first, third}, first},
		"the first, with much to do":      {busy(first, 9), []int{first, third}, first},
		"another":                         {peers(0, 0, 0), []int{third}, third},
		"two others: the better":          {peers(0, 0, 0), []int{third, second}, second},
		"another, with much to do":        {busy(third, 9), []int{third}, first},
		"two others, one with much to do": {busy(second, 9), []int{second, third}, third},
		"another, which leaves":           {gone, []int{second}, first},
		"none is usable":                  {[]Peer{{Name: "e0"}}, []int{0}, -1},
	} {
		holds := func(i int) bool {
			for _, h := range c.holds {
				if h == i {
					return true
				}
			}
			return false
		}
		if got := Holder(id, c.peers, 1.25, holds); got != c.want {
			t.Errorf("%s: %d, want %d of the ranks %v", name, got, c.want, rank)
		}
	}
}
