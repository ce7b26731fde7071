// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"afterimage/internal/route"
)

// Routing is how workers are chosen where the client has no wish.
type Routing string

// The ways of routing.
const (
	// Affinity has an image meet the Encoder, and a conversation the P/D, that have seen it before, within
	// bounds of load.
	Affinity   Routing = "affinity"
	RoundRobin Routing = "round-robin" // in turn, to compare with
	Random     Routing = "random"      // likewise
)

// What is assumed of a P/D to guess which conversations it holds.
const (
	cellBytes     = 4      // text of a token
	defaultBlocks = 8192   // of one that does not say how much it holds
	maxBlocks     = 65_536 // 3 MiB of this gateway's memory
)

// prefixLoad is how many times its share of the load a P/D may have and still get a conversation that it
// holds whole.
const prefixLoad = 1.5

// chooser chooses workers for requests. Methods may be called from any goroutine.
type chooser struct {
	how   Routing
	count func(by string) // takes the reason of each choice of a P/D
	turn  atomic.Uint64

	mu    sync.Mutex // guards what follows
	index *route.Index
	boots map[string]string // process that index is about, by URL of the P/D
	calls map[string]int    // attempts of this gateway in work, by URL of the P/D
}

// newChooser returns a chooser that remembers nothing. An empty way of routing is Affinity.
func newChooser(how Routing, count func(by string)) *chooser {
	return &chooser{how: cmp.Or(how, Affinity), count: count, index: route.NewIndex(defaultBlocks), boots: map[string]string{}, calls: map[string]int{}}
}

// number returns what route.Nth takes.
func (c *chooser) number() uint64 {
	if c.how == Random {
		return rand.Uint64()
	}
	return c.turn.Add(1) - 1
}

// prefill chooses the P/D of an attempt, whose end is to be told with done. key spreads requests over equals.
func (c *chooser) prefill(snap *snapshot, req *request, key string, past *history) (pd worker, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follow(snap)
	i, by, err := c.placeLocked(snap, req, key, past)
	if err != nil {
		return worker{}, nil, err
	}
	c.count(by)
	pd = snap.Prefills[i]
	c.index.Add(pd.URL, req.blocks)
	c.calls[pd.URL]++
	return pd, func() { c.ended(pd.URL) }, nil
}

func (c *chooser) ended(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[url]--
}

// follow has the index forget what P/Ds held before they were started again.
func (c *chooser) follow(snap *snapshot) {
	for _, w := range snap.Prefills {
		if c.boots[w.URL] == w.Seen.Boot {
			continue
		}
		c.boots[w.URL] = w.Seen.Boot
		c.index.Forget(w.URL)
		if w.Seen.Cells > 0 {
			c.index.SetLimit(w.URL, min(max(w.Seen.Cells*cellBytes/route.BlockBytes, 1), maxBlocks))
		}
	}
}

// placeLocked returns the place of the P/D that gets the request, and in a word why it does.
func (c *chooser) placeLocked(snap *snapshot, req *request, key string, past *history) (i int, by string, err error) {
	if req.pd != "" {
		i, err := route.Forced(req.pd, peers(snap.Prefills, everyone))
		if err != nil {
			return -1, "", unavailableWorker(err)
		}
		return i, "client", nil
	}
	if i := slices.IndexFunc(snap.Prefills, func(w worker) bool { return w.Up && w.URL == past.stay }); i >= 0 {
		return i, "repair", nil // it has the other images
	}
	if c.how == Affinity {
		i, by = c.affineLocked(snap, req, key, past)
	} else {
		n := c.number()
		i, by = past.pick(snap.Prefills, func(ps []route.Peer) int { return route.Nth(n, ps) }), string(c.how)
	}
	if i >= 0 {
		return i, by, nil
	}
	if err := snap.need("P/D", snap.Prefills); err != nil {
		return -1, "", unavailableWorker(err)
	}
	return -1, "", errNoneLeft
}

// affineLocked weighs what P/Ds are thought to hold of the prompt against their load.
func (c *chooser) affineLocked(snap *snapshot, req *request, key string, past *history) (int, string) {
	held := make([]int, len(snap.Prefills))
	for i, w := range snap.Prefills {
		held[i] = c.index.Match(w.URL, req.blocks)
	}
	var why route.Reason
	i := past.pick(snap.Prefills, func(ps []route.Peer) (i int) {
		for j, w := range snap.Prefills { // probes are late: a burst would meet one P/D
			ps[j].Load = max(ps[j].Load, c.calls[w.URL])
		}
		i, why = route.Prefixed(key, ps, held, len(req.blocks), prefixLoad)
		return i
	})
	return i, string(why)
}
