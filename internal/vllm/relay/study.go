// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"time"

	"afterimage/internal/embedding"
)

// Learn files what an Encoder reported of a picture: the engine's name for it, and its grid. It is called after a worker
// has answered the request with the embedding that this Encoder made.
func (r *Relay) Learn(p Picture, hash string, g Grid) {
	names, era := r.learned.namespace()
	if names == (embedding.Namespace{}) {
		return // an Encoder under other names may have said it
	}
	if r.learned.learn(p, hash, g) {
		r.saveSoon()
	}
	if _, known := r.learned.known(); !known {
		select {
		case r.lesson <- wanted(names, era, hash, g):
		default: // the one before will do
		}
	}
}

// study reads the objects of pictures that were learned of while no frame is known, until one has told it. Without,
// nothing could be brought until a picture comes twice.
func (r *Relay) study() {
	for {
		select {
		case <-r.ctx.Done():
			return
		case w := <-r.lesson:
			r.studyOne(w)
		}
	}
}

// studyOne reads one object, as soon as it is there.
func (r *Relay) studyOne(w want) {
	for _, pause := range r.lessons {
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(pause):
		}
		if _, known := r.learned.known(); known {
			return
		}
		r.reader.giveBack(r.reader.get(r.ctx, []want{w})[0])
	}
}
