// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"slices"
	"time"

	"afterimage/internal/vllm/consumer"
)

// Batch is what was brought for one request. It has to be ended.
type Batch struct {
	Items []Brought // per picture

	r        *Relay
	consumer string
	era      int // of what was learned
	ids      []ID
}

// item is one embedding of a batch.
type item struct {
	want
	at      []int // pictures
	reading *reading
	id      ID
	err     error
	how     consumer.How
}

// End ends the use of what was brought. If the request failed, or never came to the consumer, ok is false: then the
// consumer is told to give up what it holds for it, in the background.
func (b *Batch) End(ok bool) {
	if b == nil || len(b.ids) == 0 {
		return
	}
	ids := b.ids
	b.ids = nil
	free := func() {
		for _, id := range ids {
			b.r.ids.done(id)
		}
	}
	if ok {
		free()
		return
	}
	if !b.r.begin() {
		return // a successor does it
	}
	go func() {
		defer b.r.calls.Done()
		var transfers []string
		for _, id := range ids {
			transfers = append(transfers, id.Text)
		}
		// One that could not be told is tried on by the client of consumers, and after that by a successor.
		if b.r.cfg.Consumers.Abandon(context.WithoutCancel(b.r.ctx), b.consumer, transfers, false) == nil {
			free()
			return
		}
		for _, id := range ids {
			b.r.forgetLater(id)
		}
	}()
}

// keep leaves id to whoever tells its consumer that it is given up, at the latest a successor.
func (b *Batch) keep(id ID) {
	b.ids = slices.DeleteFunc(b.ids, func(x ID) bool { return x == id })
	b.r.forgetLater(id)
}

// forgetLater has id in use as long as it matters to its consumer.
func (r *Relay) forgetLater(id ID) { time.AfterFunc(buryFor, func() { r.ids.done(id) }) }
