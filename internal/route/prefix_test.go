// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// pair returns two peers with these loads.
func pair(a, b int) []Peer {
	return []Peer{{Name: "a", Ready: true, Load: a}, {Name: "b", Ready: true, Load: b}}
}

func TestPrefixed(t *testing.T) {
	f := func(name string, peers []Peer, held []int, want int, why Reason) {
		t.Helper()
		for key := range 20 { // no tie may decide
			if got, because := Prefixed(fmt.Sprint(key), peers, held, 10, 1.5); got != want || because != why {
				t.Errorf("%s: peer %d by %s, want %d by %s", name, got, because, want, why)
				return
			}
		}
	}
	f("one holds it", pair(0, 0), []int{0, 10}, 1, ByPrefix)
	f("both hold some", pair(0, 0), []int{10, 8}, 0, ByPrefix)
	f("both hold it, one is busier", pair(1, 0), []int{10, 10}, 1, ByPrefix)
	f("it is a little busier", pair(4, 1), []int{10, 0}, 0, ByPrefix)
	f("it is busier than what it holds is worth", pair(4, 1), []int{5, 0}, 1, Overridden)
	f("it is far too busy", pair(8, 1), []int{10, 0}, 1, Overridden)
	f("the next best holds half", pair(10, 1), []int{10, 5}, 1, ByPrefix)
	f("it holds too little", pair(1, 0), []int{4, 0}, 1, ByLoad)
	f("nobody holds any", pair(0, 3), []int{0, 0}, 0, ByLoad)
	gone := pair(0, 7)
	gone[0].Draining = true
	f("it is gone", gone, []int{10, 0}, 1, ByLoad)
	gone[1].Ready = false
	f("all are gone", gone, []int{10, 10}, -1, ByLoad)
}

// conversation is one that goes on: each turn adds blocks to what was said before.
type conversation []uint64

func (c *conversation) turn(random *rand.Rand, blocks int) []uint64 {
	for range blocks {
		*c = append(*c, random.Uint64())
	}
	return *c
}

// fleetSim is two P/Ds that hold so many blocks each, and a gateway that has eight requests in work at a time.
type fleetSim struct {
	index, truth *Index
	work         []int // P/D of each request in work, the latest last
	served       [2]int
	blocks, hits int // of all prompts, and those that the P/D held
	by           map[Reason]int
}

func newFleetSim(holds int) *fleetSim {
	return &fleetSim{index: NewIndex(holds), truth: NewIndex(holds), by: map[Reason]int{}}
}

// serve sends a prompt through the fleet, by the prefix or by the load alone.
func (f *fleetSim) serve(random *rand.Rand, prompt []uint64, affinity bool) {
	if len(f.work) == 8 {
		f.work = f.work[1:]
	}
	peers := pair(0, 0)
	for _, w := range f.work {
		peers[w].Load++
	}
	key := fmt.Sprint(random.Uint64())
	at := LeastLoaded(key, peers)
	if affinity {
		var why Reason
		at, why = Prefixed(key, peers, []int{f.index.Match("a", prompt), f.index.Match("b", prompt)}, len(prompt), 1.5)
		f.by[why]++
	}
	name := peers[at].Name
	f.index.Add(name, prompt)
	f.work = append(f.work, at)
	f.served[at]++
	f.blocks += len(prompt)
	f.hits += f.truth.Match(name, prompt)
	f.truth.Add(name, prompt)
}

// TestPrefixRoutingFindsMore: in conversations over two P/Ds, of which each can hold half, affinity finds far more
// of each prompt where it sends it than routing by load does, and both P/Ds have their share of the work.
func TestPrefixRoutingFindsMore(t *testing.T) {
	run := func(affinity bool) *fleetSim {
		const talks, turns, perTurn = 40, 10, 8
		random := rand.New(rand.NewPCG(1, 2))
		f := newFleetSim(talks * turns * perTurn / 2)
		all := make([]conversation, talks)
		for range turns {
			for _, i := range random.Perm(talks) {
				f.serve(random, all[i].turn(random, perTurn), affinity)
			}
		}
		return f
	}
	rate := func(f *fleetSim) float64 { return float64(f.hits) / float64(f.blocks) }
	load, prefix := run(false), run(true)
	t.Logf("of all blocks %.0f%% were held where they were sent by load, %.0f%% with affinity; served %v, %v",
		100*rate(load), 100*rate(prefix), prefix.served, prefix.by)
	if rate(prefix) < 0.75 || rate(prefix) < 1.3*rate(load) {
		t.Errorf("affinity finds %.2f of all blocks, routing by load %.2f", rate(prefix), rate(load))
	}
	if a, b := prefix.served[0], prefix.served[1]; min(a, b) < (a+b)*35/100 {
		t.Errorf("the P/Ds have served %d and %d", a, b)
	}
}

// TestHotPrefixIsShared: a long beginning that all prompts have in common does not send them all to one P/D, and
// both come to hold it.
func TestHotPrefixIsShared(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var system conversation
	system.turn(random, 50)
	f := newFleetSim(1000)
	for range 400 {
		own := append(conversation{}, system...)
		f.serve(random, own.turn(random, 2), true)
	}
	t.Logf("served %v, %v, %.0f%% held", f.served, f.by, 100*float64(f.hits)/float64(f.blocks))
	if a, b := f.served[0], f.served[1]; min(a, b) < (a+b)*40/100 {
		t.Errorf("the P/Ds have served %d and %d", a, b)
	}
	if float64(f.hits) < 0.9*float64(f.blocks) {
		t.Errorf("%d of %d blocks were held", f.hits, f.blocks)
	}
	if f.by[Overridden] == 0 {
		t.Error("the load was never too high")
	}
}

// TestNth: a counter gives each usable peer its turn.
func TestNth(t *testing.T) {
	peers := append(pair(0, 0), Peer{Name: "c"}, Peer{Name: "d", Ready: true})
	var got []int
	for n := range uint64(6) {
		got = append(got, Nth(n, peers))
	}
	if fmt.Sprint(got) != "[0 1 3 0 1 3]" || Nth(7, peers[2:3]) != -1 {
		t.Errorf("turns %v", got)
	}
}
