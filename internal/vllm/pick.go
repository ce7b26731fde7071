// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"math/rand/v2"
	"slices"
	"time"

	"afterimage/internal/route"
)

// Routing is how instances are chosen.
type Routing string

// The ways of routing. Affinity sends equal media to the same Encoder, a conversation to the worker that was sent its
// beginning, and other requests to the worker with the fewest in work; RoundRobin is vLLM's own way.
const (
	Affinity   Routing = "affinity"
	RoundRobin Routing = "round-robin"
	Random     Routing = "random"
)

// rotate returns count places of a ring of size, from cursor start on, and where the next call starts.
func rotate(start, size, count int) (places []int, next int) {
	for i := range count {
		places = append(places, (start+i)%size)
	}
	return places, start + count
}

// shunned are the workers that a request has had trouble with. Those that refused it are not asked again; those
// whose calls broke are, once nobody else is left: the connection may have been to blame.
type shunned struct{ refused, broke []string }

// add files the worker of a failed call.
func (s *shunned) add(c *callError) {
	if c.status == 0 {
		s.broke = append(s.broke, c.url)
		return
	}
	s.refused = append(s.refused, c.url)
}

// usable returns the live instances of a role that are not to be avoided. Those whose calls have just failed
// are left out, unless all have.
func (r *Registry) usable(role Role, avoid shunned, now time.Time) []*entry {
	var fit, left, broke []*entry
	for _, e := range r.live {
		switch {
		case e.Role != role || slices.Contains(avoid.refused, e.URL):
		case slices.Contains(avoid.broke, e.URL):
			broke = append(broke, e)
		case now.Before(e.leftUntil), !e.leftUntil.IsZero() && len(e.calls) > 0: // one call tries it out
			left = append(left, e)
		default:
			fit = append(fit, e)
		}
	}
	for _, list := range [][]*entry{fit, left} {
		if len(list) > 0 {
			return list
		}
	}
	return broke
}

// pick chooses an instance of a role, nil if there is none.
func (r *Registry) pick(role Role, how Routing, avoid shunned, now time.Time) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.usable(role, avoid, now)
	if len(list) == 0 {
		return nil
	}
	return r.choose(list, role, how)
}

// choose chooses one of list, the usable instances of a role.
func (r *Registry) choose(list []*entry, role Role, how Routing) *entry {
	if how == Random {
		return list[rand.IntN(len(list))]
	}
	places, _ := rotate(r.cursors[role], len(list), len(list))
	r.cursors[role]++
	best := list[places[0]]
	for _, at := range places[1:] {
		if how == Affinity && list[at].load() < best.load() {
			best = list[at]
		}
	}
	return best
}

// loadFactor is how many times its share of the calls an Encoder may have before media that belong to it go
// to another, which has to encode them again.
const loadFactor = 2

// assign chooses an Encoder for each of the named media parts; nil if there is none.
func (r *Registry) assign(names []string, how Routing, avoid shunned, now time.Time) []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.usable(Encode, avoid, now)
	if len(list) == 0 {
		return nil
	}
	out := make([]*entry, len(names))
	if how == Affinity {
		peers := make([]route.Peer, len(list))
		for i, e := range list {
			peers[i] = route.Peer{Name: e.URL, Ready: true, Load: len(e.calls)}
		}
		for i, name := range names {
			at := route.Bounded(name, peers, loadFactor)
			out[i] = list[at]
		}
		return out
	}
	places, next := rotate(r.cursors[Encode], len(list), len(names))
	r.cursors[Encode] = next
	for i, at := range places {
		if out[i] = list[at]; how == Random {
			out[i] = list[rand.IntN(len(list))]
		}
	}
	return out
}

// replica takes the next data-parallel replica of e: the Encoders push to one replica, and the request has
// to run on it.
func (r *Registry) replica(e *entry) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.turn()
}

// turn is replica without the lock.
func (e *entry) turn() int {
	if e.Replicas <= 1 {
		return 0
	}
	e.replica++
	return (e.replica - 1) % e.Replicas
}

// load is how much e has to do: its calls in flight or, if they are more, the requests in work that were given to it,
// whose calls may wait for Encoders.
func (e *entry) load() int {
	n := 0
	for _, h := range e.held {
		n += h
	}
	return max(n, len(e.calls))
}
