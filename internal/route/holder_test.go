// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"slices"
	"testing"
)

func TestHolder(t *testing.T) {
	const id = "picture"
	idle := func() (out []Peer) {
		for i := range 3 {
			out = append(out, Peer{Name: fmt.Sprint("e", i), Ready: true})
		}
		return out
	}
	rank := Rank(id, idle())
	first, second, third := rank[0], rank[1], rank[2]
	busy := func(load int, which ...int) []Peer {
		ps := idle()
		for _, i := range which {
			ps[i].Load = load
		}
		return ps
	}
	without := func(which int, how func(*Peer)) []Peer {
		ps := idle()
		how(&ps[which])
		return ps
	}
	leaves, fell := func(p *Peer) { p.Draining = true }, func(p *Peer) { p.Ready = false }
	f := func(name string, peers []Peer, holds []int, shared bool, want int) {
		t.Helper()
		before := slices.Clone(peers)
		if got := Holder(id, peers, 1.25, func(i int) bool { return slices.Contains(holds, i) }, shared); got != want {
			t.Errorf("%s: %d, want %d of the ranks %v", name, got, want, rank)
		}
		if !slices.Equal(peers, before) {
			t.Errorf("%s: the snapshot was changed", name)
		}
	}
	f("nobody", idle(), nil, false, first)
	f("nobody, and the first has much to do", busy(9, first), nil, false, first)
	f("the first and another", idle(), []int{first, third}, false, first)
	f("another", idle(), []int{third}, false, third)
	f("two others: the better", idle(), []int{third, second}, false, second)
	f("another with much to do gives it all the same", busy(9, third), []int{third}, false, third)
	f("two others, the better with much to do", busy(9, second), []int{second, third}, false, third)
	f("two others, both with much to do", busy(9, second, third), []int{second, third}, false, second)
	f("another that leaves", without(second, leaves), []int{second}, false, first)
	f("another that is down", without(second, fell), []int{second}, false, first)
	f("one of two is down", without(second, fell), []int{second, third}, false, third)
	f("all can get it", idle(), nil, true, first)
	f("all can get it, and the first has much to do", busy(9, first), nil, true, second)
	f("all can get it, and one has it", busy(9, first), []int{first}, true, first)
	f("none is usable", []Peer{{Name: "e0"}, {Name: "e1", Ready: true, Draining: true}}, []int{0, 1}, true, -1)
	f("no peers", nil, nil, false, -1)
}
