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
// image that others could give as well.
const heldLoad = 1.25

// encoder chooses the Encoder of one image. afresh says that what caches and the Store hold of it must not be used.
func (c *chooser) encoder(snap *snapshot, req *request, m *image, afresh bool, past *history) (int, error) {
	if len(req.forced) > 0 {
		i, err := route.Forced(req.forced.of(m), peers(snap.Encoders, everyone))
		if err != nil {
			return 0, unavailableWorker(err)
		}
		return i, nil
	}
	n, sum := c.number(), m.key.Sum()
	i := past.pick(snap.Encoders, func(ps []route.Peer) int {
		if c.how != Affinity {
			return route.Nth(n, ps)
		}
		if afresh { // no Encoder has anything to give: equal images must meet
			return route.First(string(m.id), ps)
		}
		holds := func(i int) bool { return snap.Encoders[i].held.has(sum) }
		return route.Holder(string(m.id), ps, heldLoad, holds, m.held)
	})
	if i >= 0 {
		return i, nil
	}
	if err := snap.need("Encoder", snap.Encoders); err != nil {
		return 0, unavailableWorker(err)
	}
	return 0, errNoneLeft
}
