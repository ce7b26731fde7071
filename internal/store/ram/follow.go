// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Follow streams what the Store has, and every change of it: the events of Events, with every Resync followed by one
// Stored, without a number, for each object that is there. It ends, and its channel is closed, when ctx ends or the
// client closes.
func (c *Client) Follow(ctx context.Context) <-chan store.Event {
	events, out := c.Events(ctx), make(chan store.Event)
	go func() {
		defer close(out)
		put := func(e store.Event) bool {
			select {
			case out <- e:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for e := range events {
			if !put(e) {
				return
			}
			if e.Kind == store.Resync && !c.listed(ctx, put) {
				return
			}
		}
	}()
	return out
}

// listed puts every object of the Store, and reports whether there may be more to put. Changes meanwhile wait in the
// stream of events, so that a key which is listed and then removed is removed for the reader, too. A list that fails
// is left where it is: the Store is going away, and another Resync follows.
func (c *Client) listed(ctx context.Context, put func(store.Event) bool) bool {
	for after := embedding.Key(""); ; {
		page, err := c.List(ctx, "", after, maxBatch)
		if err != nil || len(page) == 0 {
			return true
		}
		for _, e := range page {
			if !put(store.Event{Kind: store.Stored, Key: e.Key}) {
				return false
			}
		}
		after = page[len(page)-1].Key
	}
}
