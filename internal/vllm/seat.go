// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"afterimage/internal/route"
)

const (
	// seatBlocks is how many blocks of prompts a replica is thought to hold, the latest used: 1 MiB of text, in
	// long prompts up to four times that.
	seatBlocks = 8192
	// prefixLoad is how many times its share of the load a replica may have and still get a conversation that it
	// holds whole.
	prefixLoad = 1.5
	// prefixSlack is how many requests more than the one with the least a replica may have before its load counts
	// against a conversation that it was sent: workers compute several at once. It is a guess that nothing was measured for.
	prefixSlack = 4
)

// seat is where a prompt is prefilled: a replica of an instance. The zero seat is nowhere.
type seat struct {
	e       *entry
	replica int
}

func (s seat) name() string {
	if s.e.Replicas <= 1 {
		return s.e.URL
	}
	return s.e.URL + "#" + strconv.Itoa(s.replica)
}

// seats returns all seats of list.
func seats(list []*entry) (out []seat) {
	for _, e := range list {
		for n := range e.held {
			out = append(out, seat{e, n})
		}
	}
	return out
}

// sit chooses where a prompt of those blocks is prefilled, and counts the request as there until left is called. by
// says why in a word. The seat is the zero one if no instance is left.
func (r *Registry) sit(role Role, how Routing, blocks []uint64, avoid shunned, now time.Time) (s seat, by string, left func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.usable(role, avoid, now)
	if len(list) == 0 {
		return seat{}, "", nil
	}
	by = string(how)
	if how == Affinity {
		var why route.Reason
		s, why = r.known(list, blocks)
		by = string(why)
	}
	if s.e == nil {
		s.e = r.choose(list, role, how)
		s.replica = s.e.turn()
	}
	if how == Affinity {
		r.sent.Add(s.name(), blocks)
	}
	s.e.held[s.replica]++
	return s, by, sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.e.held[s.replica]--
	})
}

// known returns the seat that was sent the beginning of a prompt, if it matters; else the zero one, and why.
func (r *Registry) known(list []*entry, blocks []uint64) (seat, route.Reason) {
	all := seats(list)
	peers, match := make([]route.Peer, len(all)), make([]int, len(all))
	for i, s := range all {
		peers[i] = route.Peer{Name: s.name(), Ready: true, Load: s.e.held[s.replica]}
		match[i] = r.sent.Match(s.name(), blocks)
	}
	lenient(peers)
	i, why := route.Prefixed("", peers, match, len(blocks), prefixLoad)
	if why != route.ByPrefix {
		return seat{}, why
	}
	return all[i], why
}

// lenient has peers whose load is within prefixSlack of the least count as having the least.
func lenient(peers []route.Peer) {
	least := slices.MinFunc(peers, func(a, b route.Peer) int { return cmp.Compare(a.Load, b.Load) }).Load
	for i := range peers {
		if peers[i].Load <= least+prefixSlack {
			peers[i].Load = least
		}
	}
}
