// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"

	"afterimage/internal/route"
)

// anyEncoder chooses whom to ask for geometry; all Encoders in service have one namespace and one set of
// rules.
func anyEncoder(snap *snapshot, past *history) (worker, error) {
	i := past.pick(snap.Encoders, func(ps []route.Peer) int { return slices.IndexFunc(ps, route.Peer.Usable) })
	if i >= 0 {
		return snap.Encoders[i], nil
	}
	if err := snap.need("Encoder", snap.Encoders); err != nil {
		return worker{}, unavailableWorker(err)
	}
	return worker{}, errNoneLeft
}

// remembered returns an Encoder that is not up, for the names that it has given to embeddings: what it made
// may still be found, by P/D.
func (s *snapshot) remembered() (worker, bool) {
	i := slices.IndexFunc(s.Encoders, func(w worker) bool {
		return w.Known && !w.Mismatch && w.Seen.Namespace != nil && w.Seen.Processing != nil
	})
	if i < 0 {
		return worker{}, false
	}
	return s.Encoders[i], true
}

// heldLoad is how much more than its share an Encoder may have to do and still be the one that is asked for an
// image that the Store has.
const heldLoad = 1.25

// encoder chooses the Encoder of one image.
func (c *chooser) encoder(snap *snapshot, req *request, m *image, past *history) (int, error) {
	if len(req.forced) > 0 {
		i, err := route.Forced(req.forced.of(m), peers(snap.Encoders, everyone))
		if err != nil {
			return 0, unavailableWorker(err)
		}
		return i, nil
	}
	n := c.number()
	i := past.pick(snap.Encoders, func(ps []route.Peer) int {
		if c.how != Affinity {
			return route.Nth(n, ps)
		}
		if m.held { // whoever is asked reads it: the load may decide
			return route.Bounded(string(m.id), ps, heldLoad)
		}
		if rank := route.Rank(string(m.id), ps); len(rank) > 0 {
			return rank[0]
		}
		return -1
	})
	if i >= 0 {
		return i, nil
	}
	if err := snap.need("Encoder", snap.Encoders); err != nil {
		return 0, unavailableWorker(err)
	}
	return 0, errNoneLeft
}
