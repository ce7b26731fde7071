// SPDX-License-Identifier: Apache-2.0

package prefill

import "sync"

// outbox carries events from the scheduler, which never waits, to the client's writer. The length of the
// context bounds what lies in it.
type outbox struct {
	ready chan struct{} // holds one when there are events

	mu     sync.Mutex // guards events
	events []event
}

func newOutbox() outbox { return outbox{ready: make(chan struct{}, 1)} }

func (o *outbox) put(e event) {
	o.mu.Lock()
	o.events = append(o.events, e)
	o.mu.Unlock()
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

func (o *outbox) take() []event {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.events
	o.events = nil
	return out
}
